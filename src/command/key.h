/* Shared by the commands for keys of any type. */
#ifndef MAYFLY_COMMAND_KEY_H
#define MAYFLY_COMMAND_KEY_H

#include "engine/engine.h"

/* The type's name in TYPE's reply and SCAN's TYPE option; "none" for TYPE_NONE. */
static inline const char *type_name(enum value_type type)
{
    switch (type) {
    case TYPE_NONE: return "none";
    case TYPE_STRING: return "string";
    case TYPE_HASH: return "hash";
    case TYPE_LIST: return "list";
    case TYPE_SET: return "set";
    case TYPE_ZSET: return "zset";
    case TYPE_STREAM: return "stream";
    }
    return "unknown";
}

#endif
