/* The directives whose values are more than one number or text. */
#ifndef MAYFLY_CONFIG_CONFIG_CODEC_H
#define MAYFLY_CONFIG_CONFIG_CODEC_H

#include "config/config.h"

struct config_codec {
    /* As config_set. Must not change anything if it fails. */
    bool (*set)(struct config *c, const struct directive *d, u32 n, const bytes *words,
                struct buf *why);
    void (*get)(const struct config *c, const struct directive *d, struct buf *out);
    /* As config_lines; NULL: one line "name value". */
    void (*lines)(const struct config *c, const struct directive *d, struct buf *out);
};

extern const struct config_codec codec_words, codec_dir, codec_output_limit, codec_save,
    codec_percentiles, codec_oom, codec_shutdown, codec_events, codec_replicaof,
    codec_expiry_stream, codec_site_peers;

/* Appends an error text; returns false, for `return config_fail(…)`. */
bool config_fail(struct buf *why, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Finds a word in a list, ignoring case; NULL: the text lists the valid words. */
const struct config_word *config_word_find(const struct config_word *list, bytes word,
                                           struct buf *why);

/* A size in its shortest form: 100mb. */
void config_print_memory(struct buf *out, u64 bytes_);

#endif
