/* The head of a message between nodes: messages for another node, or with a forged sender, are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/message.h"
#include "cluster/peer_id.h"

static const struct message_head sent = {
    .region = 1, .from = 0xfedcba9876543210u, .to = 2ull << 24 | 7, .first = 100, .last = 16383, .has_data = true};

static void test_a_head_comes_back(void **state UNUSED)
{
    char body[MESSAGE_HEAD + 3] = {0};
    struct message_head h = {0};
    message_put(body, &sent);
    assert_null(message_get(bytes_of(body, sizeof body), node_of(sent.from), node_of(sent.to), &h));
    assert_int_equal(h.region, sent.region);
    assert_int_equal(h.from, sent.from);
    assert_int_equal(h.to, sent.to);
    assert_int_equal(h.first, sent.first);
    assert_int_equal(h.last, sent.last);
    assert_true(h.has_data);
}

static void test_others_messages_are_refused(void **state UNUSED)
{
    char body[MESSAGE_HEAD];
    struct message_head h;
    message_put(body, &sent);
    bytes b = bytes_of(body, sizeof body);
    assert_string_equal(message_get(b, node_of(sent.from), 3, &h), "a message for another node");
    assert_string_equal(message_get(b, 4, node_of(sent.to), &h), "a message in another node's name");
    b.n--;
    assert_string_equal(message_get(b, node_of(sent.from), node_of(sent.to), &h), "a message without a head");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_head_comes_back),
        cmocka_unit_test(test_others_messages_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
