/* Users without a server: rules and the texts they become, what is allowed, and the check in front of commands. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "exec/permit.h"
#include "harness.h"

/* -- SHA-256 ---------------------------------------------------------------------------- */

static void known_digests(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex;
    } known[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        u8 digest[SHA256_BYTES];
        struct buf hex = {0};
        sha256(bytes_str(known[i].text), digest);
        acl_print_password(digest, &hex);
        assert_memory_equal(hex.p, known[i].hex, 64);
        digest[31] ^= 1;
        u8 again[SHA256_BYTES];
        sha256(bytes_str(known[i].text), again);
        assert_false(sha256_same(digest, again));
        buf_release(&hex);
    }
    char million[1000];
    memset(million, 'a', sizeof million);
    u8 digest[SHA256_BYTES];
    for (size_t n = 0; n < sizeof million; n += 37) sha256(bytes_of(million, n), digest); /* every kind of tail */
}

/* -- rules ------------------------------------------------------------------------------ */

/* Applies words; NULL: all of them fit. */
static const char *apply(const struct acl *a, struct acl_user *u, const char *line)
{
    struct request_parser p;
    bytes words[512];
    const char *bad = NULL;
    u32 n;
    request_parser_init(&p);
    CHECK(request_split_words(&p, bytes_str(line)) && p.argc <= ARRAY_LEN(words));
    for (u32 i = 0; i < p.argc; i++) words[i] = request_arg(&p, line, i);
    bytes *rules = acl_join_rules(p.argc, words, &n);
    if (!rules) bad = "unmatched";
    for (u32 i = 0; rules && i < n && !bad; i++) bad = acl_user_apply(a, u, rules[i]);
    mem_free(rules);
    request_parser_release(&p);
    return bad;
}

static void assert_text(const struct acl_user *u, const char *expected)
{
    struct buf text = {0};
    acl_print_user(u, &text);
    buf_append_char(&text, '\0');
    assert_string_equal(text.p, expected);
    buf_release(&text);
}

static void rules_have_one_form(void **state)
{
    (void)state;
    struct acl a;
    acl_init(&a);
    struct acl_user *u = acl_add(&a, BYTES_LIT("u"));
    assert_text(acl_default(&a), "on nopass sanitize-payload ~* &* +@all");
    assert_false(acl_default(&a)->restricted);
    assert_text(u, "off sanitize-payload resetchannels -@all");
    assert_null(apply(&a, u, "on +@all ~* &*"));
    assert_false(u->restricted);
    assert_null(apply(&a, u, "-get (+get ~x) ( ~y"
                             " +@read ) nopass"));
    assert_true(u->restricted);
    assert_text(u, "on nopass sanitize-payload ~* &* +@all -get (~x resetchannels -@all +get) "
                   "(~y resetchannels -@all +@read)");
    assert_string_equal(apply(&a, u, "(+get"), "unmatched");
    assert_string_equal(apply(&a, u, "(+get +nope)"), "Unknown command or category name in ACL");
    assert_int_equal(u->selector_count, 3);
    assert_null(apply(&a, u, "reset"));
    assert_text(u, "off sanitize-payload resetchannels -@all");
    acl_release(&a);
}

/* Whatever was allowed: the text makes the same user again. */
static void texts_make_the_same_user(void **state)
{
    (void)state;
    struct acl a;
    u64 rng = 5;
    acl_init(&a);
    for (int round = 0; round < 2000; round++) {
        struct acl_user *u = acl_add(&a, BYTES_LIT("u")), *copy = acl_add(&a, BYTES_LIT("copy"));
        struct buf text = {0}, again = {0};
        for (u64 n = rand_below(&rng, 12); n--;) {
            struct buf rule = {0};
            const char *sign = rand_below(&rng, 2) ? "+" : "-";
            if (rand_below(&rng, 3) == 0)
                buf_printf(&rule, "%s%s", sign, command_category_names[rand_below(&rng, COMMAND_CATEGORIES)]);
            else if (rand_below(&rng, 8) == 0) buf_printf(&rule, "%s@all", sign);
            else buf_printf(&rule, "%s%s", sign, command_at((u32)rand_below(&rng, command_count()))->name);
            assert_null(acl_user_apply(&a, u, buf_bytes(&rule)));
            buf_release(&rule);
        }
        acl_print_user(u, &text);
        buf_append_char(&text, '\0');
        assert_null(apply(&a, copy, text.p));
        const struct acl_selector *x = &u->selectors[0], *y = &copy->selectors[0];
        for (u32 id = 0; id < command_count(); id++)
            assert_int_equal(x->commands[id / 64] >> (id % 64) & 1, y->commands[id / 64] >> (id % 64) & 1);
        assert_int_equal(x->future, y->future);
        acl_print_user(copy, &again);
        buf_append_char(&again, '\0');
        assert_string_equal(text.p, again.p);
        buf_release(&text);
        buf_release(&again);
        acl_remove(&a, u);
        acl_remove(&a, copy);
    }
    acl_release(&a);
}

static void users_are_found_by_name(void **state)
{
    (void)state;
    struct acl a;
    acl_init(&a);
    for (int i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "u%d", i * 37 % 200);
        acl_add(&a, bytes_str(name));
    }
    for (u32 i = 1; i < a.count; i++)
        assert_true(bytes_cmp(buf_bytes(&a.users[i - 1]->name), buf_bytes(&a.users[i]->name)) < 0);
    assert_non_null(acl_find(&a, BYTES_LIT("u17")));
    acl_remove(&a, acl_find(&a, BYTES_LIT("u17")));
    assert_null(acl_find(&a, BYTES_LIT("u17")));
    assert_int_equal(a.count, 200);
    acl_release(&a);
}

/* -- passwords ----------------------------------------------------------------------------- */

static void passwords(void **state)
{
    (void)state;
    struct acl a;
    acl_init(&a);
    struct acl_user *u = acl_add(&a, BYTES_LIT("u"));
    assert_null(apply(&a, u, ">one >two"));
    assert_false(acl_user_knows(u, BYTES_LIT("one"))); /* it is off */
    assert_null(apply(&a, u, "on"));
    assert_true(acl_user_knows(u, BYTES_LIT("one")) && acl_user_knows(u, BYTES_LIT("two")));
    assert_null(apply(&a, u, "<one"));
    assert_false(acl_user_knows(u, BYTES_LIT("one")));
    assert_true(acl_user_knows(u, BYTES_LIT("two")));
    acl_user_set_password(u, BYTES_LIT("three"));
    assert_true(acl_user_knows(u, BYTES_LIT("three")));
    assert_false(acl_user_knows(u, BYTES_LIT("two")) || acl_user_knows(u, BYTES_LIT("")));
    acl_user_set_password(u, BYTES_LIT(""));
    assert_true(u->nopass && acl_user_knows(u, BYTES_LIT("anything")));
    assert_null(apply(&a, u, "resetpass"));
    assert_false(acl_user_knows(u, BYTES_LIT("")));
    acl_release(&a);
}

/* -- checks --------------------------------------------------------------------------------- */

struct denials {
    u32 n;
    enum acl_denial last;
    enum acl_context where;
    char what[32];
};

static void note(void *owner, const struct request *q, enum acl_denial denial, enum acl_context where, bytes what)
{
    (void)q;
    struct denials *d = owner;
    d->n++;
    d->last = denial;
    d->where = where;
    snprintf(d->what, sizeof d->what, "%.*s", (int)what.n, what.p);
}

static void commands_are_checked(void **state)
{
    (void)state;
    struct world w;
    struct acl a;
    struct denials seen = {0};
    world_open(&w);
    acl_init(&a);
    w.node.on_denied = note;
    w.node.owner = &seen;
    struct acl_user *u = acl_add(&a, BYTES_LIT("u"));
    w.session.user = u;
    assert_null(apply(&a, u, "+get +mget +set ~a* %R~r (+del ~*)"));
    assert_string_equal(run(&w, "SET a 1"), "OK");
    assert_string_equal(run(&w, "GET a"), "1");
    assert_int_equal(seen.n, 0);
    assert_string_equal(run(&w, "MGET a r b c"),
                        "-NOPERM No permissions to access a key");
    assert_true(w.outcome.rejected);
    assert_int_equal(seen.last, ACL_NO_KEY);
    assert_string_equal(seen.what, "b");
    assert_string_equal(run(&w, "INCR a"), "-NOPERM User u has no permissions to run the 'incr' command");
    assert_string_equal(seen.what, "incr");
    assert_int_equal(seen.where, ACL_TOPLEVEL);
    assert_string_equal(run(&w, "DEL zzz"), "0");
    assert_string_equal(run(&w, "SET r 1"),
                        "-NOPERM No permissions to access a key");
    assert_int_equal(seen.n, 3);
    /* More keys than are kept on the stack. */
    struct buf many = {0};
    buf_append_str(&many, "MGET");
    for (int i = 0; i < 100; i++) buf_printf(&many, " a%d", i);
    buf_append_str(&many, " z");
    buf_append_char(&many, '\0');
    run(&w, many.p);
    assert_string_equal(seen.what, "z");
    buf_release(&many);
    /* A session without a user is never checked. */
    w.session.user = NULL;
    assert_string_equal(run(&w, "INCR a"), "2");
    assert_int_equal(seen.n, 4);
    world_close(&w);
    acl_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_digests),
        cmocka_unit_test(rules_have_one_form),
        cmocka_unit_test(texts_make_the_same_user),
        cmocka_unit_test(users_are_found_by_name),
        cmocka_unit_test(passwords),
        cmocka_unit_test(commands_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
