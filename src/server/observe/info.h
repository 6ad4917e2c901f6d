/* INFO, for callers other than clients. */
#ifndef MAYFLY_SERVER_OBSERVE_INFO_H
#define MAYFLY_SERVER_OBSERVE_INFO_H

#include "base/buf.h"

struct server;

/* Appends the section with this number, title included. False: there are no more. */
bool info_section(struct server *s, u32 at, struct buf *out);

#endif
