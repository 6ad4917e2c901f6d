/* The notation of syntax.def: what each sign means, and that every command has a line that holds. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "command/command.h"
#include "command/syntax.h"

static const char *const type_names[] = {"str", "int", "dbl", "key", "pat", "unix", "tok", "one", "blk"};

static void show_list(const struct syntax_arg *arg, struct buf *to);

/* TOKEN name:type/spec?*+ @since !deprecated {parts}, where ? is optional, * multiple, + token, too. */
static void show(const struct syntax_arg *arg, struct buf *to)
{
    if (arg->token.n) buf_printf(to, "%.*s ", (int)arg->token.n, arg->token.p);
    syntax_name(arg, to);
    buf_printf(to, ":%s", type_names[arg->type]);
    if (arg->key_spec >= 0) buf_printf(to, "/%d", arg->key_spec);
    if (arg->flags & SYNTAX_OPTIONAL) buf_append_char(to, '?');
    if (arg->flags & SYNTAX_MULTIPLE) buf_append_char(to, '*');
    if (arg->flags & SYNTAX_MULTIPLE_TOKEN) buf_append_char(to, '+');
    if (arg->since.n) buf_printf(to, " @%.*s", (int)arg->since.n, arg->since.p);
    if (arg->deprecated_since.n)
        buf_printf(to, " !%.*s", (int)arg->deprecated_since.n, arg->deprecated_since.p);
    if (!arg->parts) return;
    buf_append_str(to, " {");
    show_list(arg->parts, to);
    buf_append_char(to, '}');
}

static void show_list(const struct syntax_arg *arg, struct buf *to)
{
    for (; arg; arg = arg->next) {
        show(arg, to);
        if (arg->next) buf_append_str(to, ", ");
    }
}

static void assert_reads(const char *text, const char *expected)
{
    struct syntax s;
    struct buf shown = {0};
    assert_true(syntax_parse(&s, text));
    show_list(s.first, &shown);
    buf_append_char(&shown, '\0');
    assert_string_equal(shown.p, expected);
    buf_release(&shown);
}

static void arguments_have_types(void **state)
{
    (void)state;
    assert_reads("", "");
    assert_reads("key value", "key:key/0, value:str");
    assert_reads("seconds milliseconds unix-time-seconds pattern radius",
                 "seconds:int, milliseconds:int, unix-time-seconds:unix, pattern:pat, radius:dbl");
    assert_reads("a:s b:i c:d d:p e:u f:0 g:2", "a:str, b:int, c:dbl, d:pat, e:unix, f:key/0, g:key/2");
    assert_reads("key:s seconds:s", "key:str, seconds:str");
    assert_reads("pattern:p1 ip:port yes/no", "pattern:pat/1, ip:port:str, yes/no:str");
}

static void words_stand_alone_or_announce(void **state)
{
    (void)state;
    assert_reads("NX", "NX nx:tok");
    assert_reads("sorting=ALPHA", "ALPHA sorting:tok");
    assert_reads("EX seconds", "EX seconds:int");
    assert_reads("LIB-NAME name x", "LIB-NAME name:str, x:str");
    assert_reads("COUNT count [ANY]", "COUNT count:int, ANY any:tok?");
    assert_reads("LIMIT <offset count>", "LIMIT offset_count:blk {offset:int, count:int}");
    assert_reads("BY by<A | B>", "BY by:one {A a:tok, B b:tok}");
}

static void groups_have_names(void **state)
{
    (void)state;
    assert_reads("where<LEFT | RIGHT>", "where:one {LEFT left:tok, RIGHT right:tok}");
    assert_reads("<ON | OFF>", "on_off:one {ON on:tok, OFF off:tok}");
    assert_reads("<a <b c>>", "a_b_c:blk {a:str, b_c:blk {b:str, c:str}}");
    assert_reads("<parameter>", "parameter:blk {parameter:str}");
    assert_reads("[GET]", "GET get:tok?");
    assert_reads("[A | B]", "a_b:one? {A a:tok, B b:tok}");
    assert_reads("options[count [X]]", "options:blk? {count:int, X x:tok?}");
    assert_reads("options[count]", "options:blk? {count:int}");
}

static void dots_repeat(void **state)
{
    (void)state;
    assert_reads("key...", "key:key/0*");
    assert_reads("[section...]", "section:str?*");
    assert_reads("<field value>...", "field_value:blk* {field:str, value:str}");
    assert_reads("[WEIGHTS weight...]", "WEIGHTS weight:int?*");
    assert_reads("[GET pattern]...", "GET pattern:pat?*+");
    assert_reads("[GET <a b>]...", "GET a_b:blk?*+ {a:str, b:str}");
    assert_reads("operation[A | B]...", "operation:one?* {A a:tok, B b:tok}");
}

static void versions_stand_behind(void **state)
{
    (void)state;
    assert_reads("[GET@6.2.0] [count]@3.2.0", "GET get:tok? @6.2.0, count:int? @3.2.0");
    assert_reads("EX seconds@2.6.12", "EX seconds:int @2.6.12");
    assert_reads("c[NX | XX@7.0.0]@6.0.0 d!2.8.12",
                 "c:one? @6.0.0 {NX nx:tok, XX xx:tok @7.0.0}, d:str !2.8.12");
    assert_reads("key...@1.0.0!2.0.0", "key:key/0* @1.0.0 !2.0.0");
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "[", "]", "<a", "a>", "[]", "<>", "a | b", "|", "<a |>", "<| a>", "<a | | b>", "<a b | c>",
        "[a>", "a:x", "a..", "a....", "[a]b", "=A", "x@", "<<<<a>>>",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct syntax s;
        if (syntax_parse(&s, texts[i]) || s.count || s.first) fail_msg("'%s' was read", texts[i]);
    }
    char many[2 * SYNTAX_MAX_ARGS + 3];
    struct syntax s;
    for (size_t i = 0; i + 1 < sizeof(many); i++) many[i] = i % 2 ? ' ' : 'a';
    many[sizeof(many) - 1] = '\0';
    assert_false(syntax_parse(&s, many));
    many[2 * SYNTAX_MAX_ARGS] = '\0';
    assert_true(syntax_parse(&s, many));
}

/* Keys of the syntax belong to key specs the command has. */
static void assert_specs_exist(const struct command *cmd, const struct syntax_arg *arg)
{
    for (; arg; arg = arg->next) {
        assert_true(arg->key_spec < COMMAND_MAX_SPECS);
        if (arg->key_spec >= 0) assert_true(cmd->specs[arg->key_spec].begin != SEEK_NONE);
        assert_specs_exist(cmd, arg->parts);
    }
}

static void every_command_has_its_line(void **state)
{
    (void)state;
    static const char *const names[] = {
#define SYNTAX(name_, arguments_) name_,
#include "command/syntax.def"
#undef SYNTAX
    };
    assert_int_equal(ARRAY_LEN(names), command_count());
    for (u32 id = 0; id < command_count(); id++) {
        const struct command *cmd = command_at(id);
        struct syntax s;
        assert_string_equal(names[id], cmd->name);
        if (!syntax_parse(&s, command_syntax(cmd))) fail_msg("the syntax of %s", cmd->name);
        assert_specs_exist(cmd, s.first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_have_types),
        cmocka_unit_test(words_stand_alone_or_announce),
        cmocka_unit_test(groups_have_names),
        cmocka_unit_test(dots_repeat),
        cmocka_unit_test(versions_stand_behind),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(every_command_has_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
