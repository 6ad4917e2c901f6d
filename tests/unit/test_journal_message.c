/* Messages in the journal: for sinks that want them, and within the record of a transaction; and keys that expired. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "journal/journal.h"

struct recorder {
    struct journal_sink sink; /* first */
    struct buf text;
    u32 records, messages;
};

static void append(struct journal_sink *sink, const struct journal_record *r)
{
    struct recorder *to = (struct recorder *)(void *)sink;
    to->records++;
    to->messages += journal_is_message(r);
    buf_append_bytes(&to->text, buf_bytes(&r->resp));
}

static void say(struct journal *j) { journal_message(j, 0, 2, (bytes[]){BYTES_LIT("publish"), BYTES_LIT("x")}); }
static void change(struct journal *j, u32 db)
{
    journal_effect(j, db, 2, (bytes[]){BYTES_LIT("DEL"), BYTES_LIT("k")});
}

#define MESSAGE "*2\r\n$7\r\npublish\r\n$1\r\nx\r\n"
#define CHANGE "*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n"
#define SELECT0 "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"
#define SELECT3 "*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n"

static void expect(struct recorder *r, const char *text)
{
    assert_int_equal(r->text.n, strlen(text));
    assert_memory_equal(r->text.p, text, r->text.n);
    buf_clear(&r->text);
}

static void only_who_wants_them_gets_messages(void **state)
{
    (void)state;
    struct journal j = {.db = -1};
    struct recorder data = {.sink.append = append}, all = {.sink = {.append = append, .messages = true}};
    journal_attach(&j, &data.sink);
    say(&j);
    assert_int_equal(journal_close(&j, 1, 1), 0); /* without a sink there is no record */
    journal_attach(&j, &all.sink);
    say(&j);
    assert_int_equal(journal_close(&j, 1, 1), 1);
    expect(&all, SELECT0 MESSAGE); /* nothing was selected yet */
    assert_int_equal(all.messages, 1);
    change(&j, 3);
    journal_close(&j, 1, 1);
    expect(&all, SELECT3 CHANGE); /* `data` has not seen the message's SELECT */
    say(&j);
    change(&j, 3);
    journal_close(&j, 1, 1);
    expect(&all, "*1\r\n$5\r\nMULTI\r\n" MESSAGE CHANGE "*1\r\n$4\r\nEXEC\r\n");
    assert_int_equal(all.messages, 1);
    say(&j);
    journal_abandon(&j);
    change(&j, 3);
    journal_close(&j, 1, 1);
    assert_int_equal(all.messages, 1);
    assert_int_equal(all.records, 4);
    buf_release(&data.text);
    buf_release(&all.text);
    journal_release(&j);
}

static void expire(struct journal *j, u32 db) { journal_expired(j, db, BYTES_LIT("k")); }

static void keys_that_expire_need_no_transaction(void **state)
{
    (void)state;
    struct journal j = {.db = -1};
    struct recorder r = {.sink.append = append};
    journal_attach(&j, &r.sink);
    expire(&j, 3);
    expire(&j, 3);
    journal_close(&j, 1, 1);
    expect(&r, SELECT3 CHANGE CHANGE);
    assert_int_equal(r.records, 1);
    expire(&j, 3);
    change(&j, 3);
    journal_close(&j, 1, 1);
    expect(&r, "*1\r\n$5\r\nMULTI\r\n" CHANGE CHANGE "*1\r\n$4\r\nEXEC\r\n");
    expire(&j, 3);
    journal_close(&j, 1, 1);
    expect(&r, CHANGE);
    buf_release(&r.text);
    journal_release(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_who_wants_them_gets_messages),
        cmocka_unit_test(keys_that_expire_need_no_transaction),
    };
    return cmocka_run_group_tests_name("journal messages", tests, NULL, NULL);
}
