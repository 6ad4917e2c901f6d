#!/usr/bin/env python3
"""Sites: an executable specification of Mayfly's active-active replication.

    tests/site/model.py                       the named scenarios, then 2,000 random histories
    tests/site/model.py --check N [FIRST]     N random histories from seed FIRST on; shrinks a failure
    tests/site/model.py --bugs                plants bugs and shows that the checker finds each
    tests/site/model.py --trace SEED [N]      N histories as lines, which tests/site/replay.c follows
    tests/site/model.py --trace-scenarios     the named scenarios likewise

WORDS. A *site* has a number, its *gid* (1 byte). Its s-th write is an *effect* with the *dot* (gid, s), an HLC stamp
(48 bit ms, 16 bit counter) and a context: the site's *clock* {gid: seq} of effects applied before. A site applies an
effect when its own clock covers the context (causal order), each once. Time at a site is the later of the machine's
clock and the HLC; it never steps back. A stamp more than MAX_SKEW_MS ahead is applied but does not move the HLC.

ONE RULE. A key is a bag of atoms, each marked by the dot that made it. An effect takes away only atoms that its
context covers (what its author saw) and adds atoms of its own. So the state is a function of the set of effects, not
of their order. Full sync needs no tombstones for them: an atom one side lacks although its clock covers it was removed
there. Only marks of expiry and emptied counters stay behind until all have seen them.

DATA (two writes are concurrent if neither author saw the other's; a later one that saw wins whatever the clocks say)
  string        register; concurrent SETs: later stamp, then lower gid. The TTL of a SET lives and dies with its value
  APPEND etc.   a write of the whole new value
  INCR*         each site's running total: value = winning SET + the increments that no SET or DEL has seen.
                None is lost or counted twice. If the winner is no number it shows as it is
  hash, zset    each field or member is such a register with such a counter
  set           observed remove, add wins
  list          elements are registers at immutable positions. RPUSH puts n = stamp, LPUSH n = -stamp, so concurrent
                pushes lie in order of time, one command's values together; LINSERT makes a position in between. No
                tombstones. Two sites may pop the same element (at least once); LSET beats a concurrent pop
  stream        entries keep their ids. XADD * makes a seq whose low byte is the gid, so no two sites make the same id.
                An id that users chose twice is one entry: the lower gid's (an id is never added again where it is
                known, so no clock decides). Last id: the highest of the entries' and of what XSETID said; XDEL and
                XTRIM of the highest entry state it, too. It keeps no stream alive: what makes a stream says that it is
                there, and what takes its last entry, if nothing else says it. So one without entries stays until a
                DEL, and XDEL beside a DEL makes no new one. Groups are a site's own
  types         the key's last write decides (later stamp, lower gid); the loser's content is hidden, and goes with
                the next write that saw it
  DEL, *REM, POP, TRIM, FLUSHALL, RENAME   remove what they saw: a concurrent update survives
MULTI           each command is an effect; they are a piece, which travels and is applied as a whole (MORE: another
                follows). Not one effect: a DEL in it could not remove what a SET in it had made
CRASH           what a site did since its engine last committed is undone: data, clock, HLC, log, what it knows of the
                others; also effects that wait for others. So nothing leaves a site before it is committed: the dots
                of what is lost are used again, and nobody has seen them
TTL
  entries       EXPIRE and PERSIST replace the entries they saw. Longest wins, PERSIST is shortest: concurrent EXPIREs
                give the longest, EXPIRE beats PERSIST and plain SET, later beats earlier, DEL beats EXPIRE
  in place      INCR, HSET, ... on a key with a TTL carries the deadline along ("keep"). It counts when no other entry
                is left: a counter that survives a concurrent DEL or expiry still dies at its deadline
  hiding        at the deadline, everywhere, by the site's time
  deleting      the owner (gid of the last write) at once, others after 500 ms of silence: a clear of what they saw.
                Before a remote write joins a key past its deadline, what is here so far is deleted. A deadline that
                arrives late ends what its author saw, at once. A deadline that passes while a longer one holds is
                spent. So no write or increment stamped at or after a deadline dies of it or stays hidden by it
                (stamps more than MAX_SKEW_MS ahead aside)
  extension     if an expiry meets an EXPIRE or PERSIST its author had not seen, the extending site writes the content
                again, with the old stamps. Lost only if that site is evicted before it can
  hash fields   have entries and marks of their own, and the same rules: HEXPIRE is EXPIRE, HPERSIST PERSIST, HDEL DEL,
                HSET a SET (it drops the entries it saw), HINCRBY and HSETEX KEEPTTL are in place. HSETEX is an HSET and
                an HEXPIRE: its deadline does not die with its value. Fields are deleted by the owner of the key, all
                that are due by one effect; before a write joins a field, what is past its deadline there goes. A hash
                whose fields are all past their deadlines is hidden. If the key itself expires and survives by an
                extension, its fields get their deadlines back
GARBAGE. An effect is stable when every member is known to have it (clocks travel with effects and heartbeats, and
count only when all of the peer's own effects up to them are here: it may have made one before it saw the rest). When
all that a site had at a key's last change is stable, nothing concurrent to it can still come, and we drop: values that
lost, TTL entries that lost, hidden types, marks of expiry, dead counters, empty keys.
TORN. A site that is killed while it merges a full sync has merged some keys, and not advanced its clock. Until a full sync
of a site that has as much (it takes no other) it takes no writes, applies no effects, expires and collects nothing, and sends no full sync. When
that one begins, it expires what is past its deadline here, as always; but its effects name no dots that its clock does
not cover, and it leaves keys (fields) with a running total that is covered in part.
MEMBERS. join: a member says JOIN gid, waits until all others have said that they know of it, and only then gives the
new site its snapshot, with which that may write at once. So nobody is ever unknown to a member: a site that evicts
fences off all that may have anything of the evicted one, and garbage waits for all that may still write. evict: all
survivors fence the gid off, exchange what any of them has of it, one says EVICT. The evicted site's other effects are
lost; it comes back empty, under a new gid. A site that was admitted but never came is evicted, too.

TRACE. Lines of words: history SEED | sites N | time gid ms .. | op gid ARGUMENTS | deliver from to gid seq (in any
order, also twice) | full from to (the snapshot of `from` is merged at `to`) | tear from to key .. (the same, but `to` is
killed when these keys are merged) | clock from to | cron gid | gc gid |
admit by gid | join by gid ms (it starts, from the snapshot) | fence gid seq (all drop its effects after seq) |
evict by gid | multi gid ARGUMENTS ; ARGUMENTS .. (one piece) | store gid (its engine commits, as it also does before
`time` and `gc`, and when it has joined) | crash gid ms (back to that; the clock says ms) | end. After a line, for every
site in which something changed: show gid clock, then for each key "| name type value deadline claims ttls marks writes
counters": what a client sees, and how many atoms are kept.
"""

import random
import sys
import time
from copy import copy
from collections import namedtuple

THERE, LAST = ("stream", ()), ("stream", (0, 0))     # cells of a stream that are no entries
EXPIRE_DELAY_MS = 500          # a site that does not own a key waits this long before deleting it
MAX_SKEW_MS = 60_000           # a remote stamp further ahead than this does not move our clock

Effect = namedtuple("Effect", "dot ts ctx moves")
MORE = ("more", "")            # a move of all effects of a piece but the last


def seen(clock, dot):
    return clock.get(dot[0], 0) >= dot[1]


def upto(e):
    """Its author's clock once it had applied the effect."""
    return {**e.ctx, e.dot[0]: e.dot[1]}


def join(a, b):
    return {g: max(a.get(g, 0), b.get(g, 0)) for g in {**a, **b}}


def unseen(atoms, clock):
    return {d: v for d, v in atoms.items() if clock.get(d[0], 0) < d[1]}


def number(text):
    """How a string counts as a number: int, float or None."""
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return None


def fmt(n):
    return str(int(n)) if n == int(n) else repr(n)


def rank(item):
    """Order of two concurrent writes: later HLC stamp wins, then the lower gid."""
    return item[1][0], -item[0][0], item[0][1]


def by_gid(item):
    return -item[0][0], item[0][1]


def by_value(item):
    return item[1][1], rank(item)


def longest(entries):
    """Of (dot, (kind, at, ..)) the one that decides: the longest, none (PERSIST) is shortest. One that was only kept
    counts if there is no other."""
    real = [e for e in entries if e[1][0] == "E"]
    return max(real or entries, key=lambda e: (-1 if e[1][1] is None else e[1][1], e[0]), default=None)


# ---------------------------------------------------------------- state

class Cell:
    """One register: a string, hash field, set member, zset member, list element or stream entry.
    by:     the order of concurrent writes, if it is not rank
    writes: dot -> (ts, value, birth); several only after concurrent writes.
    incs:   gid -> (hi, total, lo, lo_total, rdot): that site's increments with lo < seq <= hi count, as
            total - lo_total; rdot is the removal that set lo.
    ttl:    of a hash field: dot -> (kind, at), as a key's.     fired: dot -> ctx, marks of its expiries."""
    __slots__ = ("writes", "incs", "by", "ttl", "fired")

    def __init__(self, writes=(), incs=(), by=None, ttl=(), fired=()):
        self.writes, self.incs, self.by, self.ttl, self.fired = dict(writes), dict(incs), by, dict(ttl), dict(fired)

    def copy(self):
        return Cell(self.writes, self.incs, self.by, self.ttl, self.fired)

    def empty(self):
        return not (self.writes or self.incs or self.ttl or self.fired)

    def deadline(self):
        e = longest(self.ttl.items())
        return e[1][1] if e else None

    def due(self, now):
        return self.deadline() is not None and self.deadline() <= now

    def alive(self):
        return bool(self.writes) or any(i[0] > i[2] for i in self.incs.values())

    def winner(self):
        return max(self.writes.items(), key=self.by or rank, default=None)

    def value(self):
        top = self.winner()
        base = top[1][1] if top else None
        live = [i[1] - i[3] for _, i in sorted(self.incs.items()) if i[0] > i[2]]
        n = number(base or "0") if live else None
        return base if n is None else fmt(n + sum(live))

    def observed(self, scope=None):
        """What a removal has to say about increments: gid -> (hi, total)."""
        return {g: (i[0], i[1]) for g, i in self.incs.items()
                if i[0] > i[2] and (scope is None or scope.get(g, 0) >= i[0])}

    def clear(self, ctx, obs, rdot):
        self.ttl = unseen(self.ttl, ctx)
        self.remove(ctx, obs, rdot)

    def remove(self, ctx, obs, rdot):
        self.writes = unseen(self.writes, ctx)
        for g, (hi, total, lo, lo_total, r) in list(self.incs.items()):
            cut = (hi, total) if ctx.get(g, 0) >= hi else obs.get(g, (0, 0))
            if cut[0] > lo:
                self.incs[g] = (hi, total, cut[0], cut[1], rdot)


class Key:
    """head: dot -> (ts, type), the last writers: decides the type and the owner.
    ttl:   dot -> (kind, at, birth, scope); kind E expire/persist/set-with-ttl, K kept by an in-place write;
           scope: None; past its deadline the clock it is confined to (it ends only what that covers).
    fired: dot -> ctx, marks of expiry deletes.           cells: (type, path) -> Cell.
    last:  this site's clock at the last touch (in C: its journal position), for gc only."""
    __slots__ = ("head", "ttl", "fired", "cells", "last")

    def __init__(self):
        self.head, self.ttl, self.fired, self.cells, self.last = {}, {}, {}, {}, {}

    def copy(self):
        k = Key()
        k.head, k.ttl, k.fired = dict(self.head), dict(self.ttl), dict(self.fired)
        k.last, k.cells = self.last, {a: c.copy() for a, c in self.cells.items()}
        return k

    def cell(self, kind, path):
        return self.cells.setdefault((kind, path), Cell(by=by_value if (kind, path) == LAST else
                                                        by_gid if kind == "stream" else None))

    def claim(self):
        """(dot, (ts, type)) of the winning type, or None if the key has no content."""
        live = {a[0] for a, c in self.cells.items() if c.alive() and a != LAST}
        return max((h for h in self.head.items() if h[1][1] in live), key=rank, default=None)

    def type(self):
        top = self.claim()
        return top[1][1] if top else None

    def rows(self, kind):
        return sorted((a[1], c) for a, c in self.cells.items() if a[0] == kind and c.alive())

    def shown(self, kind, now):
        """Those of them that are not past a deadline of their own."""
        return [(p, c) for p, c in self.rows(kind) if not c.due(now)]

    def birth(self):
        """Dot of the SET the visible string descends from; None for other types."""
        c = self.cells.get(("string", ""))
        top = c and c.winner()
        return top[1][2] if top and self.type() in (None, "string") else None

    def ttl_entry(self):
        """The entry that decides the deadline, or None. Longest wins, none (PERSIST) is shortest.
        An entry that came with a SET counts only while that SET's value is the visible one."""
        if not self.ttl:
            return None
        ok = [e for e in self.ttl.items() if e[1][2] is None or
              self.type() in (None, "string") and self.birth() in (None, e[1][2])]
        return longest(ok)

    def deadline(self):
        e = self.ttl_entry()
        return e[1][1] if e else None

    def empty(self):
        return not (self.head or self.ttl or self.fired or self.cells)


def between(p, q, dot):
    """A list position after p and before q (neighbours, None at the ends), unique by dot. Positions are
    tuples of (n, gid, seq, i); a longer one sorts right after its prefix."""
    if p is None:
        return ((q[0][0] - 1, *dot, 0),)
    if q and q[:len(p)] == p:
        return p + ((q[len(p)][0] - 1, *dot, 0),)
    step = p[:-1] + ((p[-1][0] + 1, *dot, 0),)
    return step if q and len(p) > 1 and p < step < q else p + ((0, *dot, 0),)


class OpError(Exception):
    pass


# ---------------------------------------------------------------- site

class Site:
    def __init__(self, gid, members=None, phys=0):
        self.gid, self.phys, self.hlc = gid, phys, 0
        self.clock, self.keys = {}, {}
        self.log, self.pending = {}, {}             # backlog in causal order; effects that came too early
        self.members = {g: (g, 0) for g in members or ()}     # gid -> dot of its join
        self.fenced = {}                            # evicted gid -> last seq accepted of it
        self.acks = {}                              # gid -> the latest clock it has sent us
        self.torn, self.torn_upto = False, {}       # a full sync was interrupted; atoms that the clock does not cover, but this
        self.after, self.touch = [], {}             # content to write again; counts for the checker
        self.audit = lambda *a: None                # the checker's eye

    # ---- time
    def tick(self, ms):
        """The machine's clock says ms. Steps back are not followed, so nothing expired comes back."""
        self.phys = max(self.phys, ms)

    def now(self):
        return max(self.phys, self.hlc >> 16)

    def next_stamp(self):
        return (self.gid, self.clock.get(self.gid, 0) + 1), max(self.hlc + 1, self.phys << 16)

    # ---- effects: make, receive, apply
    def commit(self, moves):
        dot, ts = self.next_stamp()
        e = Effect(dot, ts, dict(self.clock), tuple(moves))
        self.audit(self, e)
        self.hlc = ts
        self.apply(e)
        return e

    def receive(self, e):
        """Takes an effect in any order, any number of times; applies it in causal order, a piece as a whole."""
        for m in e.moves:
            dots = [*m[2], *m[3]] if m[0] == "spend" else m[3] if m[0] == "fspend" else ()
            assert all(seen(upto(e), d) for d in dots), "an effect that refers to what its site can't know"
        self.pending[e.dot] = e
        piece = [e]
        while piece:
            self.pending = {d: p for d, p in sorted(unseen(self.pending, self.clock).items())
                            if d[1] <= self.fenced.get(d[0], d[1])}
            piece = next(filter(None, map(self.piece, self.pending.values())), None)
            if piece:
                self.apply_remote(piece)

    def ready_for(self, e):
        return self.clock.get(e.dot[0], 0) == e.dot[1] - 1 and all(seen(self.clock, d) for d in e.ctx.items())

    def piece(self, e):
        """The effects of the piece that begins with e, if they can be applied now."""
        parts = [e]
        while MORE in parts[-1].moves:
            parts.append(self.pending.get((e.dot[0], parts[-1].dot[1] + 1)))
            if not parts[-1]:
                return None
        return parts if self.ready_for(e) else None

    def apply_remote(self, piece):
        """No effect of ours comes between those of a piece."""
        for e in piece:
            if (e.ts >> 16) <= self.phys + MAX_SKEW_MS:
                self.hlc = max(self.hlc, e.ts)
            for m in e.moves:                       # what is past its deadline dies before a write joins it
                if m[0] == "claim":
                    self.expire_if_due(m[1])
                elif m[0] in ("put", "add") and m[2] == "hash":
                    self.expire_fields(m[1], [m[3]])
        for e in piece:
            self.apply(e)
        for e in piece:
            for m in e.moves:
                late = {p.dot: upto(p) for p in piece}
                if m[0] in ("ttl", "keep") and m[2] is not None and m[2] <= self.now():
                    self.expire_if_due(m[1], late)      # a deadline that came too late
                elif m[0] in ("fttl", "fkeep") and m[3] is not None and m[3] <= self.now():
                    self.expire_fields(m[1], [m[2]], late)
        self.hear(e.dot[0], upto(e))
        self.reassert()

    def apply(self, e):
        self.log[e.dot] = e
        for m in e.moves:
            getattr(self, "do_" + m[0])(e, *m[1:])
        self.clock[e.dot[0]] = e.dot[1]
        last = dict(self.clock)
        for m in e.moves:
            self.tidy(m[1], last)

    def key(self, name):
        self.touch[name] = self.touch.get(name, 0) + 1
        return self.keys.setdefault(name, Key())

    def tidy(self, name, last=None):
        k = self.keys.get(name)
        if k:
            k.last = last or k.last
            k.cells = {a: c for a, c in k.cells.items() if not c.empty()}
            if k.empty():
                del self.keys[name]

    # ---- the moves an effect is made of
    def do_claim(self, e, name, kind, ts=None):
        k = self.key(name)
        k.head = {**unseen(k.head, e.ctx), e.dot: (ts or e.ts, kind)}

    def do_put(self, e, name, kind, path, value, obs, ts=None, birth=None):
        c = self.key(name).cell(kind, path)
        c.remove(e.ctx, obs, e.dot)
        c.writes[e.dot] = (ts or e.ts, value, birth or e.dot)

    def do_add(self, e, name, kind, path, prev, prev_total, delta, fresh):
        c = self.key(name).cell(kind, path)
        g, s = e.dot
        old = c.incs.get(g)
        if fresh or old is None:                    # all before prev is gone, here too
            old = (0, 0, prev, prev_total, None)
        c.incs[g] = (s, prev_total + delta) + old[2:]

    def do_rem(self, e, name, kind, path, obs):
        c = self.key(name).cells.get((kind, path))
        if c:
            c.clear(e.ctx, obs, e.dot)

    def do_clear(self, e, name, obs, scope=None):
        """DEL and overwrite take away what their author had seen, an expiry what its deadline is confined to."""
        k, ctx = self.key(name), scope or e.ctx
        if scope:
            k.fired[e.dot] = scope
            if e.dot[0] != self.gid:
                self.after.append((name, k.copy(), scope, None))
        for a, c in k.cells.items():
            c.clear(ctx, obs.get(a, {}), e.dot)
        k.head, k.ttl = unseen(k.head, ctx), unseen(k.ttl, ctx)

    def do_ttl(self, e, name, at, birth):
        k = self.key(name)
        k.ttl = {**unseen(k.ttl, e.ctx), e.dot: ("E", at, birth)}

    def do_keep(self, e, name, at, birth):
        k = self.key(name)
        k.ttl = {d: t for d, t in k.ttl.items() if t[0] == "E" or not seen(e.ctx, d)}
        k.ttl[e.dot] = ("K", at, birth)

    def do_spend(self, e, name, ttl, writes):
        k = self.key(name)
        k.ttl = {d: t for d, t in k.ttl.items() if d not in ttl}
        for d in writes:
            k.cells.get(("string", ""), Cell()).writes.pop(d, None)

    def do_fttl(self, e, name, path, at):
        c = self.key(name).cell("hash", path)
        c.ttl = {**unseen(c.ttl, e.ctx), e.dot: ("E", at)}

    def do_fkeep(self, e, name, path, at):
        c = self.key(name).cell("hash", path)
        c.ttl = {d: t for d, t in c.ttl.items() if t[0] == "E" or not seen(e.ctx, d)}
        c.ttl[e.dot] = ("K", at)

    def do_fdrop(self, e, name, path):
        """A plain HSET on a field with a deadline."""
        c = self.key(name).cell("hash", path)
        c.ttl = unseen(c.ttl, e.ctx)

    def do_fspend(self, e, name, path, ttl):
        c = self.key(name).cell("hash", path)
        c.ttl = {d: t for d, t in c.ttl.items() if d not in ttl}

    def do_fexpire(self, e, name, path, obs, scope, shows):
        """If the hash showed, other types don't come back when it ends, as after any write that saw them."""
        k = self.key(name)
        if e.dot[0] != self.gid:
            self.after.append((name, k.copy(), scope, path))
        c = k.cell("hash", path)
        c.fired[e.dot] = scope
        c.clear(scope, obs, e.dot)
        if shows:
            k.head = {d: h for d, h in k.head.items() if h[1] == "hash" or not seen(scope, d)}

    def do_flush(self, e, _, obs):
        for name in list(self.keys):
            self.do_clear(e, name, obs.get(name, {}))
            self.tidy(name, {**self.clock, e.dot[0]: e.dot[1]})

    def do_more(self, e, _):
        """Others apply this effect together with the next one of its author."""

    def fence(self, gid, seq):
        """Accepts no effect of a site after this one; it is about to be evicted."""
        self.fenced[gid] = seq
        self.pending = {d: p for d, p in self.pending.items() if d[0] != gid or d[1] <= seq}

    def do_join(self, e, gid):
        self.members[gid] = e.dot

    def do_evict(self, e, gid):
        self.members.pop(gid, None)
        self.acks.pop(gid, None)
        self.fence(gid, e.ctx.get(gid, 0))

    # ---- expiry
    def known(self, dot):
        """A torn site has atoms that its clock does not cover. No effect of its may refer to them."""
        return not self.torn or seen(self.clock, dot)

    def counts(self, *cells):
        """Nobody knows a running total up to a clock that covers it in part."""
        return all(self.known((g, i[0])) for c in cells for g, i in c.incs.items())

    def due(self, name):
        k = self.keys.get(name)
        at = k.deadline() if k else None
        return at is not None and at <= self.now()

    def clear_move(self, name, scope=None):
        cells = (self.keys.get(name) or Key()).cells
        return "clear", name, {a: c.observed(scope) for a, c in cells.items() if c.observed(scope)}, scope

    def expire_if_due(self, name, late=None):
        """Before a write joins a key, what is past its deadline goes. An entry past its deadline ends what is here so
        far; one that arrived late (dot -> clock) only what its author saw. On a key that lives on by a longer entry
        the past ones are spent, and with them strings that lost and had a deadline of their own."""
        k, late = self.keys.get(name) or Key(), late or {}
        past = {d: t[2] for d, t in sorted(k.ttl.items()) if t[1] is not None and t[1] <= self.now() and self.known(d)}
        if not self.counts(*k.cells.values()):
            return
        if past and self.due(name) and self.known(k.ttl_entry()[0]):
            self.commit([self.clear_move(name, late.get(k.ttl_entry()[0]) or dict(self.clock))])
            self.expire_if_due(name, late)          # by the next entry, if it ends more
        elif past:
            longer = any(t[0] == "E" and t[1] and not t[2] and t[1] > self.now() for t in k.ttl.values())
            cell, births = k.cells.get(("string", "")), {*past.values()} - {None, k.birth()}
            lost = [d for d, w in sorted(cell.writes.items()) if w[2] in births and self.known(d)] if cell and not longer else []
            self.commit([("spend", name, list(past), lost)])

    def expire_fields(self, name, paths, late=None):
        """The same for hash fields, all by one effect."""
        k, late, moves = self.keys.get(name) or Key(), late or {}, []
        for p in paths:
            c = k.cells.get(("hash", p), Cell())
            past = {d for d, t in c.ttl.items() if t[1] is not None and t[1] <= self.now() and self.known(d)}
            if not past or not self.counts(c):
                continue
            if c.due(self.now()) and self.known(longest(c.ttl.items())[0]):
                scope = late.get(longest(c.ttl.items())[0]) or dict(self.clock)
                moves.append(("fexpire", name, p, c.observed(scope), scope, k.type() == "hash"))
            else:
                moves.append(("fspend", name, p, sorted(past)))
        if moves:
            self.commit(moves)
            self.expire_fields(name, paths, late)

    def due_fields(self, name, wait=0):
        """Fields that show but for their deadlines, in order of these."""
        k = self.keys.get(name)
        rows = k.rows("hash") if k and k.type() == "hash" else []
        return [p for _, p in sorted((c.deadline(), p) for p, c in rows if c.due(self.now() - wait))]

    def past_fields(self, name):
        """Those with a deadline that has passed, whether it decides and whether they show."""
        k = self.keys.get(name) or Key()
        return sorted(a[1] for a, c in k.cells.items() if any(t[1] and t[1] <= self.now() for t in c.ttl.values()))

    def cron(self):
        """The owner deletes at once; the others only if it stays silent for EXPIRE_DELAY_MS."""
        for name in sorted(self.keys) if not self.torn else ():
            top, at = self.keys[name].claim(), self.keys[name].deadline()
            wait = EXPIRE_DELAY_MS if top and top[0][0] != self.gid else 0
            if not self.due(name) or top and at + wait <= self.now():
                self.expire_if_due(name)
            self.expire_fields(name, self.due_fields(name, wait))

    def reassert(self):
        """An expiry delete met an EXPIRE or PERSIST of ours that its author had not seen: the key
        lives, so we write again what the delete took (with the old stamps, so nothing newer loses)."""
        while self.after:
            name, before, ctx, field = self.after.pop(0)
            k, kind = self.keys.get(name) or Key(), before.type()
            ttl = k.ttl if field is None else k.cells.get(("hash", field), Cell()).ttl
            if not (kind and k.type() in (None, kind) and (field is None or kind == "hash") and
                    any(d[0] == self.gid and t[0] == "E" and not seen(ctx, d) and
                        (t[1] is None or t[1] > self.now()) for d, t in ttl.items())):
                continue
            moves, head = [], before.claim()[1][0]
            for path, c in before.rows(kind):
                here = k.cells.get((kind, path))
                if not (here and here.alive()) and field in (None, path):
                    top = c.winner()
                    ts, _, birth = top[1] if top else (head, None, None)
                    moves.append(("put", name, kind, path, c.value(), {}, ts, birth))
                    if field is None and c.deadline() is not None:
                        moves.append(("fkeep", name, path, c.deadline()))
            if moves:
                head = max([head] + [h[0] for h in k.head.values()])
                self.commit([("claim", name, kind, head)] + moves)

    # ---- clocks of the others, stability, garbage
    def hear(self, gid, clock):
        """A peer's clock. It counts only once we have all of the peer's own effects up to it."""
        if gid in self.members and self.clock.get(gid, 0) >= clock.get(gid, 0):
            self.acks[gid] = join(self.acks.get(gid, {}), clock)

    def may_start(self, gid):
        """Whether every other member has said that it knows of this one's JOIN, which was made here."""
        return all(seen(self.acks.get(g, {}), self.members[gid]) for g in self.members if g not in (self.gid, gid))

    def stable_clock(self):
        known = [self.clock if g == self.gid else self.acks.get(g, {}) for g in self.members]
        return {g: min(c.get(g, 0) for c in known) for g in self.clock}

    def gc(self):
        """Cleans the keys of which all is stable: every effect still to come has seen it, and removes no less. (One
        field being stable is not enough: a deadline its author set before may still be late somewhere.)"""
        st = self.stable_clock()
        for name, k in list(self.keys.items()) if not self.torn else ():
            if all(seen(st, d) for d in k.last.items()):
                top, ttl = k.claim(), k.ttl_entry()
                k.head, k.fired = dict([top]) if top else {}, {}
                k.ttl = dict([ttl]) if top and ttl and ttl[1][1] is not None else {}
                k.cells = {a: c for a, c in k.cells.items() if top and c.alive() and a[0] == top[1][1]}
                for c in k.cells.values():
                    ttl, c.fired = longest(c.ttl.items()), {}
                    c.ttl = dict([ttl]) if ttl and ttl[1][1] is not None else {}
                    c.writes = dict([c.winner()]) if c.writes else {}
                    c.incs = {g: i[:4] + (None,) for g, i in c.incs.items() if i[0] > i[2]}
                self.tidy(name)

    # ---- synchronisation
    def since(self, clock):
        """Effects a peer with that clock lacks, in causal order; None if the backlog is too short."""
        out = list(unseen(self.log, clock).values())
        return out if len(out) == sum(max(0, s - clock.get(g, 0)) for g, s in self.clock.items()) else None

    def snapshot(self):
        return {"gid": self.gid, "clock": dict(self.clock), "hlc": self.hlc, "members": dict(self.members),
                "fenced": dict(self.fenced), "keys": {n: k.copy() for n, k in self.keys.items()}}

    def serves(self):
        """Whether others get anything from it, other than its own effects."""
        return not self.torn

    def accepts(self, clock):
        """Whether it takes a full sync of a site with that clock. A torn site only takes one that makes it complete."""
        return all(seen(join(self.clock, clock), d) for d in self.torn_upto.items())

    def rescues(self, name, theirs):
        """Whether an expiry that is new here takes what an EXPIRE or PERSIST of this site keeps alive. Such a key is merged
        in the last transaction of a full sync, which writes that content again: meanwhile nobody would have it."""
        k = self.keys.get(name) or Key()
        pairs = [(k, theirs)] + [(k.cells.get(a, Cell()), c) for a, c in theirs.cells.items()]
        return any(d[0] == self.gid and t[0] == "E" for x, y in pairs if unseen(y.fired, self.clock) for d, t in x.ttl.items())

    def merge(self, snap, only=None):
        """Full sync. An atom one side lacks although its clock covers it was removed there. only: it is interrupted
        after these keys; the site is torn then."""
        if (snap["hlc"] >> 16) <= self.phys + MAX_SKEW_MS:
            self.hlc = max(self.hlc, snap["hlc"])
        theirs = snap["clock"]
        if self.gid in snap["fenced"]:
            raise OpError("EVICTED rejoin empty, under a new gid")
        self.torn, self.torn_upto = True, join(self.torn_upto, theirs)
        for name in sorted(self.keys):
            self.expire_if_due(name)
            self.expire_fields(name, self.due_fields(name))
        mine = dict(self.clock)
        last, late = join(mine, theirs), {}

        def both(a, b, by_value=False):
            return {x: v for x, v in {**a, **b}.items() for d in [v if by_value else x]
                    if (x in a or not seen(mine, d)) and (x in b or not seen(theirs, d))}
        for name in sorted({*self.keys, *snap["keys"]}) if only is None else \
                sorted(n for n in only if not self.rescues(n, snap["keys"].get(n) or Key())):
            k, o = self.key(name), snap["keys"].get(name) or Key()
            late[name] = {d: theirs for x in (o, *o.cells.values()) for d in x.ttl if not seen(mine, d)}
            for path, x in [(None, o)] + sorted((a[1], c) for a, c in o.cells.items() if c.fired):
                for d, ctx in x.fired.items():
                    if not seen(mine, d):
                        self.after.append((name, k.copy(), ctx, path))
            k.head, k.ttl, k.fired = both(k.head, o.head), both(k.ttl, o.ttl), both(k.fired, o.fired)
            for a in {*k.cells, *o.cells}:
                c, oc = k.cell(*a), o.cells.get(a) or Cell()
                c.writes, c.ttl, c.fired = both(c.writes, oc.writes), both(c.ttl, oc.ttl), both(c.fired, oc.fired)
                incs = {}
                for g in {*c.incs, *oc.incs}:
                    x, y = c.incs.get(g), oc.incs.get(g)
                    if x and y:
                        incs[g] = max(x[:2], y[:2]) + max(x, y, key=lambda t: (t[2], t[0]))[2:]
                    elif (theirs if x else mine).get(g, 0) < (x or y)[0]:
                        incs[g] = x or y
                c.incs = incs
            self.tidy(name, last)
        if only is not None:
            self.after = []                         # with the process that was merging
            return
        self.members = both(self.members, snap["members"], True) if mine else dict(snap["members"])
        for g, s in snap["fenced"].items():
            self.fenced.setdefault(g, s)
            self.acks.pop(g, None)
        self.clock = join(mine, theirs)
        self.torn, self.torn_upto = False, {}
        for name in sorted(snap["keys"]):
            self.expire_if_due(name, late[name])
            self.expire_fields(name, self.past_fields(name), late[name])
        self.reassert()
        self.hear(snap["gid"], theirs)
        waiting, self.pending = self.pending, {}
        for e in waiting.values():
            self.receive(e)

    # ---- what is kept over a crash
    def stored(self):
        """What the engine has of this site after a commit, other than the effects it waits for."""
        kept = "hlc", "clock", "log", "members", "fenced", "acks", "torn", "torn_upto"
        return {"phys": self.phys, "keys": {n: k.copy() for n, k in self.keys.items()},
                **{what: copy(getattr(self, what)) for what in kept}}

    def crash(self, stored):
        """The process ends within a transaction and starts again: that transaction was never made."""
        self.__dict__.update(stored)
        self.pending, self.after = {}, []

    # ---- commands
    def multi(self, *commands):
        """MULTI or a script: each command an effect, all of them one piece. Returns the replies."""
        replies, first = [], self.clock.get(self.gid, 0) + 1
        for argv in commands:
            try:
                replies.append(self.do(*argv))
            except OpError as err:
                replies.append(err)
        for seq in range(first, self.clock.get(self.gid, 0)):
            e = self.log[self.gid, seq]
            self.log[e.dot] = e._replace(moves=e.moves + (MORE,))
        return replies

    def do(self, *argv):
        """Runs a command here and returns its reply; its effect, if any, is in the log. A write first deletes what
        it finds past its deadline."""
        if argv[0] not in ("GET", "PTTL", "HPTTL", "ADMIT", "EVICT", "FLUSHALL"):
            for name in argv[1:3] if argv[0] in ("RENAME", "COPY") and self.look(argv[1]) else argv[1:2]:
                if self.due(name):
                    self.expire_if_due(name)
                self.bury(name)
        return COMMANDS[argv[0]](self, *argv[1:])

    def hollow(self, name):
        """A hash all of whose fields are past their deadlines."""
        k = self.keys.get(name)
        return bool(k and k.type() == "hash" and not k.shown("hash", self.now()))

    def bury(self, name):
        if self.hollow(name):
            self.expire_fields(name, self.due_fields(name))

    def look(self, name, kind=None):
        """The key as a client sees it: None if absent or past its deadline."""
        k = self.keys.get(name)
        t = k.type() if k and not self.due(name) and not self.hollow(name) else None
        if t and kind and t != kind:
            raise OpError("WRONGTYPE")
        return k if t else None

    def start(self, name, kind):
        """(key, moves) a write begins with. In place: claim the key, end hidden cells of other types, carry the
        deadline along. On an absent key: end what we saw of the old one, even if nothing of it is left here."""
        k = self.look(name, kind)
        self.expire_if_due(name)
        if k is None:
            return None, [self.clear_move(name), ("claim", name, kind)]
        moves = [("claim", name, kind)]
        moves += [("rem", name, *a, c.observed()) for a, c in sorted(k.cells.items()) if a[0] != kind and c.alive()]
        if k.deadline() is not None:
            moves.append(("keep", name, k.deadline(), k.birth()))
        return k, moves

    def rows(self, name, kind):
        k = self.look(name, kind)
        return k.shown(kind, self.now()) if k else []

    def put(self, name, kind, new, birth=None, ttl=None):
        """HSET, SADD, ZADD, LSET: writes cells {path: value}; returns how many are new. ttl, of hash fields: a deadline
        or KEEPTTL."""
        old = dict(self.rows(name, kind))
        for p in new if kind == "hash" else ():
            self.expire_fields(name, [p])
        k, moves = self.start(name, kind)
        for p, v in new.items():
            c = k and k.cells.get((kind, p))
            moves.append(("put", name, kind, p, v, c.observed() if c else {}, None, birth))
            moves += self.field_moves(name, p, c, ttl == "KEEPTTL")
        moves += [("fttl", name, p, ttl) for p in new if ttl not in (None, "KEEPTTL")]
        self.commit(moves)
        return sum(p not in old for p in new)

    def field_moves(self, name, path, c, stays):
        """What a write to a field says about its deadline: it stays, or goes."""
        if not c or not c.ttl:
            return []
        if not (stays and c.alive()):
            return [("fdrop", name, path)]
        return [("fkeep", name, path, c.deadline())] if c.deadline() is not None else []

    def remove(self, name, kind, paths):
        """HDEL, SREM, ZREM, pops: a key left empty is deleted."""
        old = dict(self.rows(name, kind))
        hit = [p for p in dict.fromkeys(paths) if p in old]
        if hit and len(hit) == len(self.keys[name].rows(kind)):
            self.commit([self.clear_move(name)])
        elif hit:
            self.commit(self.start(name, kind)[1] + [("rem", name, kind, p, old[p].observed()) for p in hit])
            self.bury(name)
        return len(hit)

    def add(self, name, kind, path, n):
        """INCR*, HINCRBY, ZINCRBY."""
        c = dict(self.rows(name, kind)).get(path)
        base = number(c.value()) if c else 0
        if base is None or isinstance(base, float) and isinstance(n, int):
            raise OpError("value is not a number")
        if kind == "hash":
            self.expire_fields(name, [path])
        k, moves = self.start(name, kind)
        c = k and k.cells.get((kind, path))
        i = c and c.incs.get(self.gid)
        fresh = not (i and i[0] > i[2])
        prev = (self.clock.get(self.gid, 0), 0) if fresh else i[:2]
        moves.append(("add", name, kind, path, *prev, n, fresh))
        self.commit(moves + self.field_moves(name, path, c, True))
        return fmt(base + n)

    def set(self, name, value, opt=None, t=None):
        k = self.look(name)
        if opt == "KEEPTTL" and k and k.type() == "string":
            self.put(name, "string", {"": value}, k.birth())
            return "OK"
        at = k.deadline() if opt == "KEEPTTL" and k else None
        if opt in ("EX", "PX", "PXAT"):
            at = int(t) if opt == "PXAT" else self.now() + int(t) * (1000 if opt == "EX" else 1)
        moves = [("claim", name, "string"), ("put", name, "string", "", value, {})]
        if at is not None:
            moves = moves + [("ttl", name, at, self.next_stamp()[0])] if at > self.now() else []
        self.commit([self.clear_move(name)] + moves)
        return "OK"

    def append(self, name, tail):
        k = self.look(name, "string")
        value = (k.cells["string", ""].value() if k else "") + tail
        self.put(name, "string", {"": value}, k and k.birth())
        return len(value)

    def delete(self, name):
        found = self.look(name) is not None
        if found:
            self.commit([self.clear_move(name)])
        return int(found)

    def push(self, name, values, left=False):
        rows = self.rows(name, "list")
        self.expire_if_due(name)
        dot, ts = self.next_stamp()
        n = min(-ts, rows[0][0][0][0] - 1 if rows else 0) if left else max(ts, rows[-1][0][0][0] + 1 if rows else 0)
        self.put(name, "list", {((n, *dot, -i if left else i),): v for i, v in enumerate(values)})
        return len(rows) + len(values)

    def pop(self, name, end):
        rows = self.rows(name, "list")
        value = rows[end][1].value() if rows else None
        self.remove(name, "list", [rows[end][0]] if rows else [])
        return value

    def linsert(self, name, where, pivot, value):
        rows = self.rows(name, "list")
        at = next((i for i, (_, c) in enumerate(rows) if c.value() == pivot), None)
        if at is None:
            return -1 if rows else 0
        self.expire_if_due(name)
        at += where == "AFTER"
        p, q = rows[at - 1][0] if at else None, rows[at][0] if at < len(rows) else None
        self.put(name, "list", {between(p, q, self.next_stamp()[0]): value})
        return len(rows) + 1

    def lset(self, name, index, value):
        rows, i = self.rows(name, "list"), int(index)
        if not -len(rows) <= i < len(rows):
            raise OpError("index out of range")
        self.put(name, "list", {rows[i][0]: value})
        return "OK"

    def ltrim(self, name, *ends):
        paths = [p for p, _ in self.rows(name, "list")]
        lo, hi = (int(i) + len(paths) if int(i) < 0 else int(i) for i in ends)
        self.remove(name, "list", [p for i, p in enumerate(paths) if not lo <= i <= hi])
        return "OK"

    def stream(self, name):
        """(ids of the entries, last id: the highest there was, or what XSETID said)"""
        rows = dict(self.rows(name, "stream"))
        ids = [p for p in rows if p > LAST[1]]
        return ids, max(ids[-1:] + [c.value() for c in [rows.get(LAST[1])] if c], default=(0, 0))

    def next_id(self, ms, last):
        """An id after the last one. Its seq ends in the gid, so that no two sites make the same."""
        if ms > last[0]:
            return ms, self.gid
        seq = (last[1] | 255) - 255 + self.gid
        return last[0], seq if seq > last[1] else seq + 256

    def xadd(self, name, at, *fields):
        _, last = self.stream(name)
        self.expire_if_due(name)
        ms, _, seq = at.partition("-")
        entry = self.next_id(self.now(), last) if at == "*" else self.next_id(int(ms), last) if seq == "*" else \
            (int(ms), int(seq))
        if entry <= last or ms != "*" and int(ms) < last[0]:
            raise OpError("The ID specified in XADD is equal or smaller than the target stream top item")
        self.put(name, "stream", {**({} if self.look(name) else {THERE[1]: ""}), entry: ":".join(fields)})
        return text_of_id(entry)

    def xcut(self, name, gone):
        """XDEL, XTRIM: a stream without entries stays, and so does its last id."""
        ids, last = self.stream(name)
        hit, old = [i for i in ids if i in gone], dict(self.rows(name, "stream"))
        if hit:
            moves = self.start(name, "stream")[1] + [("rem", name, "stream", i, {}) for i in hit]
            if hit[-1] == last and not (LAST[1] in old and old[LAST[1]].value() == last):
                moves.append(("put", name, *LAST, last, {}))
            if len(hit) == len(ids) and THERE[1] not in old:
                moves.append(("put", name, *THERE, "", {}))
            self.commit(moves)
        return len(hit)

    def xtrim(self, name, by, limit):
        ids = self.stream(name)[0]
        return self.xcut(name, ids[:max(0, len(ids) - int(limit))] if by == "MAXLEN" else
                         [i for i in ids if i < id_of(limit)])

    def xsetid(self, name, last):
        ids = self.stream(name)[0]
        if not self.look(name) or ids and id_of(last) < ids[-1]:
            raise OpError("no such key, or smaller than the target stream top item")
        self.put(name, "stream", {LAST[1]: id_of(last)})
        return "OK"

    def mkstream(self, name):
        """XGROUP CREATE .. MKSTREAM: groups are a site's own, the stream is everybody's."""
        if not self.look(name, "stream"):
            self.put(name, "stream", {THERE[1]: ""})
        return "OK"

    def pexpireat(self, name, at):
        if self.look(name) is None:
            return 0
        self.commit([self.clear_move(name) if at <= self.now() else ("ttl", name, at, None)])
        return 1

    def persist(self, name):
        k = self.look(name)
        if k is None or k.deadline() is None:
            return 0
        self.commit([("ttl", name, None, None)])
        return 1

    def hpexpireat(self, name, at, fields):
        """Returns how many fields there are."""
        hit = [p for p in dict.fromkeys(fields) if p in dict(self.rows(name, "hash"))]
        if at <= self.now():
            return self.remove(name, "hash", hit)
        if hit:
            self.commit([("fttl", name, p, at) for p in hit])
        return len(hit)

    def hpersist(self, name, fields):
        old = dict(self.rows(name, "hash"))
        hit = [p for p in dict.fromkeys(fields) if p in old and old[p].deadline() is not None]
        if hit:
            self.commit([("fttl", name, p, None) for p in hit])
        return len(hit)

    def hpttl(self, name, field):
        c = dict(self.rows(name, "hash")).get(field)
        return -2 if c is None else -1 if c.deadline() is None else c.deadline() - self.now()

    def pttl(self, name):
        k = self.look(name)
        return -2 if k is None else -1 if k.deadline() is None else k.deadline() - self.now()

    def copy(self, src, dst, move=False):
        k = self.look(src)
        if k is None or src == dst:
            return 0
        kind = k.type()
        moves = [self.clear_move(n) for n in ([src, dst] if move else [dst])] + [("claim", dst, kind)]
        rows = k.shown(kind, self.now())
        moves += [("put", dst, kind, p, c.value(), {}) for p, c in rows]
        moves += [("fttl", dst, p, c.deadline()) for p, c in rows if c.deadline() is not None]
        if k.deadline() is not None:
            moves.append(("ttl", dst, k.deadline(), self.next_stamp()[0] if kind == "string" else None))
        self.commit(moves)
        return 1

    def flushall(self):
        obs = {n: self.clear_move(n)[2] for n in self.keys}
        self.commit([("flush", "", {n: o for n, o in obs.items() if o})])
        return "OK"

    # ---- what clients see
    def view(self):
        """{key: (type, value, deadline)}"""
        out = {}
        for name, k in sorted(self.keys.items()):
            kind = None if self.due(name) or self.hollow(name) else k.type()
            if kind is None:
                continue
            rows = [(p, c.value() if c.deadline() is None else f"{c.value()}@{c.deadline()}")
                    for p, c in k.shown(kind, self.now())]
            value = (rows[0][1] if kind == "string" else [p for p, _ in rows] if kind == "set" else
                     [v for _, v in rows] if kind == "list" else self.entries(name, rows) if kind == "stream" else
                     dict(rows))
            out[name] = (kind, value, k.deadline())
        return out

    def entries(self, name, rows):
        return [f"{text_of_id(p)}={v}" for p, v in rows if p > LAST[1]] + ["last=" + text_of_id(self.stream(name)[1])]

    def raw(self):
        return {n: (k.head, k.ttl, k.fired, {a: (c.writes, c.incs, c.ttl, c.fired) for a, c in k.cells.items()})
                for n, k in self.keys.items()}


def id_of(text):
    return tuple(int(x) for x in text.split("-"))


def text_of_id(entry):
    return "%d-%d" % entry


def get(s, k):
    return next((c.value() for _, c in s.rows(k, "string")), None)


COMMANDS = {
    "GET": get, "SET": Site.set, "DEL": Site.delete, "APPEND": Site.append,
    "INCR": lambda s, k: s.add(k, "string", "", 1),
    "INCRBY": lambda s, k, n: s.add(k, "string", "", int(n)),
    "INCRBYFLOAT": lambda s, k, n: s.add(k, "string", "", float(n)),
    "HSET": lambda s, k, *a: s.put(k, "hash", dict(zip(a[::2], a[1::2]))),
    "HDEL": lambda s, k, *f: s.remove(k, "hash", f),
    "HINCRBY": lambda s, k, f, n: s.add(k, "hash", f, int(n)),
    "HEXPIRE": lambda s, k, t, *f: s.hpexpireat(k, s.now() + int(float(t) * 1000), f),
    "HPEXPIREAT": lambda s, k, t, *f: s.hpexpireat(k, int(t), f), "HPERSIST": lambda s, k, *f: s.hpersist(k, f),
    "HPTTL": Site.hpttl, "HSETEX": lambda s, k, t, f, v: s.put(k, "hash", {f: v}, None, s.now() + int(t)),
    "HSETKEEP": lambda s, k, f, v: s.put(k, "hash", {f: v}, None, "KEEPTTL"),
    "SADD": lambda s, k, *m: s.put(k, "set", dict.fromkeys(m, "")),
    "SREM": lambda s, k, *m: s.remove(k, "set", m),
    "ZADD": lambda s, k, *a: s.put(k, "zset", {m: fmt(float(x)) for x, m in zip(a[::2], a[1::2])}),
    "ZREM": lambda s, k, *m: s.remove(k, "zset", m),
    "ZINCRBY": lambda s, k, n, m: s.add(k, "zset", m, float(n)),
    "RPUSH": lambda s, k, *v: s.push(k, v), "LPUSH": lambda s, k, *v: s.push(k, v, True),
    "LPOP": lambda s, k: s.pop(k, 0), "RPOP": lambda s, k: s.pop(k, -1),
    "LINSERT": Site.linsert, "LSET": Site.lset, "LTRIM": Site.ltrim,
    "XADD": lambda s, *a: s.xadd(*a), "XDEL": lambda s, k, *i: s.xcut(k, [id_of(x) for x in i]), "XTRIM": Site.xtrim,
    "XSETID": Site.xsetid, "MKSTREAM": Site.mkstream,
    "EXPIRE": lambda s, k, t: s.pexpireat(k, s.now() + int(float(t) * 1000)),
    "PEXPIREAT": lambda s, k, t: s.pexpireat(k, int(t)), "PERSIST": Site.persist, "PTTL": Site.pttl,
    "RENAME": lambda s, a, b: s.copy(a, b, True), "COPY": Site.copy, "FLUSHALL": Site.flushall,
    "ADMIT": lambda s, gid: s.commit([("join", gid)]),
    "EVICT": lambda s, gid: s.commit([("evict", gid)]),     # after all survivors have fenced gid, see World.act_evict
}


# ---------------------------------------------------------------- named scenarios

# Steps: "1 CMD .. [= reply]" at site 1 ("*": at all), "1>2" a link from 1 to 2 comes up, "1~2 k .." a full sync is interrupted when these keys are merged, "3<2.1" effect (2, 1) reaches 3, "1!3" the clock of 3 does,
# "sync" all links, "tick 1 ms" time passes and cron runs at 1, "forget" all backlogs are lost, "gc" at all or "gc 1 2", "join 3 1" 3 joins by 1,
# "all k = value" what all show, "torn 1" it is, "store 1" the engine of 1 commits (as before anything is sent), "crash 1", "gone ms" after that time nothing is left of anything anywhere.
SCENARIOS = """
3 EXPIRE and PERSIST, PERSIST arrives first: 1 SET k v EX 1000; sync; 2 EXPIRE k 2000; 3 PERSIST k; 3>1; 1 PTTL k = -1; sync; * PTTL k = 2000000; gone 2000000
3 EXPIRE arrives before its SET: 1 SET k v; 1>2; 2 EXPIRE k 1000; 3<2.1; 3 GET k = None; sync; * PTTL k = 1000000; gone 1000000
2 EXPIRE by a site that did not write the key: 1 SET k v; sync; join 3 1; sync; 2 EXPIRE k 1000; 2>3; 3 PTTL k = 1000000; sync; * PTTL k = 1000000; gone 1000000
2 the same by full sync: 1 SET k v; sync; join 3 1; sync; 2 EXPIRE k 1000; forget; 2>3; 3 PTTL k = 1000000; sync; * PTTL k = 1000000; gone 1000000
2 a shorter EXPIRE that saw the longer: 1 SET k v EX 1000; sync; 2 EXPIRE k 10; sync; * PTTL k = 10000; gone 10000
2 owner at once: 1 SET k v PX 100; sync; tick 1 100; 1>2; 2 GET k = None; gone 0
2 others hide at once and delete after 500 ms: 1 SET k v PX 100; sync; tick 2 599; 2 GET k = None; 1<2.1; 1 GET k = v; tick 2 1; 1<2.1; 1 GET k = None
2 who has seen wins, whatever the clocks say: tick 1 5000; 1 SET k old; 1>2; 2 SET k new; sync; * GET k = new
2 SET beats an older DEL: 1 SET k x; sync; 1 DEL k; tick 2 2000; 2 SET k v; sync; * GET k = v
2 SET beats a newer DEL: 1 SET k x; sync; 2 SET k v; tick 1 2000; 1 DEL k; sync; * GET k = v
3 DEL before the SET it saw: 1 SET k v; 1>2; 2 DEL k; 3<2.1; sync; * GET k = None; gone 0
2 equal stamps, lower gid: 2 SET k two; 1 SET k one; sync; * GET k = one
3 floats: 1 INCRBYFLOAT k 1.1; 2 INCRBYFLOAT k 1.9; 3 INCRBYFLOAT k 2; sync; * GET k = 5
2 DEL, INCR: 1 SET k 100; 1 INCR k; sync; 1 DEL k; 2 INCR k; sync; * GET k = 1
2 DEL, INCR by the one who had: 1 INCR k; sync; 2 DEL k; 1 INCR k; sync; * GET k = 1
2 SET, INCR: 1 SET k 5; sync; 1 SET k 10; 2 INCR k; sync; * GET k = 11
2 add wins: 1 SADD k m; sync; 1 SREM k m; 2 SADD k m; sync; all k = ['m']
2 scores add up: 1 ZADD k 3 m; sync; 1 ZINCRBY k 1.12 m; 2 ZINCRBY k 1.0 m; sync; all k = {'m': '5.12'}
2 types, the later: 1 SET k v; tick 2 5; 2 HSET k f v; sync; all k = {'f': 'v'}
2 a SET's TTL loses with it: 1 SET k v EX 10; tick 2 5; 2 SET k w; sync; * GET k = w; * PTTL k = -1
2 EXPIRE, SET: 1 SET k v; sync; 1 EXPIRE k 10; 2 SET k w; sync; * GET k = w; * PTTL k = 10000
2 EXPIRE, DEL: 1 SET k v; sync; 1 EXPIRE k 10; 2 DEL k; sync; * GET k = None; gone 0
2 a list grows at both ends in turn: 1 RPUSH k b; sync; 2 LPUSH k a; sync; 1 RPUSH k c; sync; 2 LPUSH k x; sync; 1 LPUSH k y; sync; all k = ['y', 'x', 'a', 'b', 'c']
3 writes carry a deadline along: 1 HSET k f v; 1 EXPIRE k 10; sync; 2 HSET k g w; sync; 1 HSET k h x; 1>3; 2 DEL k; sync; all k = {'h': 'x'}; * PTTL k = 10000
3 INCR at two sites, and a DEL that saw one: 1 INCR k; sync; 2 INCR k; sync; 1 INCR k; 2 INCR k; 1>3; 2>3; 2 DEL k; 2>3; sync; * GET k = 1
2 add wins in a set that stays: 1 SADD k m n; sync; 1 SREM k m; 2 SADD k m; sync; all k = ['m', 'n']
3 a list in order of time: 1 RPUSH k x; sync; 1 RPUSH k b c; 3 LPUSH k a; 3 LINSERT k AFTER x y; tick 2 5; 2 RPUSH k d; sync; all k = ['a', 'x', 'y', 'b', 'c', 'd']
2 expired on both, then a write: 1 SET k v PX 100; sync; tick 1 900; tick 2 900; 2 SET k new; sync; * GET k = new
2 stale expiry, newer SET: 1 SET k v EX 2; sync; 1 SET k v1; tick 2 9000; sync; * GET k = v1
2 the same by full sync: 1 SET k v EX 2; sync; 1 SET k v1; tick 2 9000; forget; sync; * GET k = v1
2 stale expiry, PERSIST: 2 HSET k f v; 2 EXPIRE k 2; sync; 2 PERSIST k; tick 1 9000; sync; all k = {'f': 'v'}; * PTTL k = -1
2 the same by full sync: 2 HSET k f v; 2 EXPIRE k 2; sync; 2 PERSIST k; tick 1 9000; forget; sync; all k = {'f': 'v'}; * PTTL k = -1
2 a late deadline ends what its author saw: 2 HSET k f u; 2 EXPIRE k 1; tick 1 5000; 1 HSET k g w; 2>1; sync; all k = {'g': 'w'}; * PTTL k = -1
3 a clock counts only with its effects: 2 SET k w; tick 1 5; 1 SET k v; 3<1.1; 3 DEL k; 3<2.1; 1<2.1; 2<1.1; 1!2; 1!3; gc; 1<3.1; sync; * GET k = w
3 garbage waits for a late deadline: 2 HSET k f a; tick 1 5; 1 HSET k f b; 1 EXPIRE k 1; 2>1; 2<1.1; 1>3; 2>3; gc; tick 2 5000; 1>2; sync; all k = {'f': 'a'}
2 INCR at a slow clock, the limiter still ends: 1 INCR k; 1 EXPIRE k 2; sync; 2 INCR k; tick 1 9000; sync; * GET k = None; gone 0
2 the longest deadline of a field: 1 HSET h f v; sync; 1 HEXPIRE h 10 f; 2 HEXPIRE h 20 f; sync; * HPTTL h f = 20000; gone 20000
3 HEXPIRE, HPERSIST, HPERSIST arrives first: 1 HSETEX h 1000000 f v; sync; 2 HEXPIRE h 2000 f; 3 HPERSIST h f; 3>1; 1 HPTTL h f = -1; sync; * HPTTL h f = 2000000; gone 2000000
2 a shorter HEXPIRE that saw the longer: 1 HSETEX h 9000 f v; sync; 2 HEXPIRE h 1 f; sync; * HPTTL h f = 1000; gone 1000
2 HEXPIRE, HSET: 1 HSET h f v; sync; 1 HEXPIRE h 10 f; 2 HSET h f w; sync; all h = {'f': 'w@1010000'}; gone 10000
2 an HSET drops the deadline that it saw: 1 HSETEX h 5000 f v; sync; 2 HSET h f w; sync; all h = {'f': 'w'}
2 HSETEX KEEPTTL carries it along: 1 HSETEX h 5000 f v; sync; 2 HSETKEEP h f w; 1 HPERSIST h f; sync; all h = {'f': 'w'}
2 HEXPIRE, HDEL: 1 HSET h f v g v; sync; 1 HEXPIRE h 10 f; 2 HDEL h f; sync; all h = {'g': 'v'}
2 HEXPIRE, DEL: 1 HSET h f v; sync; 1 HEXPIRE h 10 f; 2 DEL h; sync; * HPTTL h f = -2; gone 0
2 a field, owner at once: 1 HSET h g v; 1 HSETEX h 100 f v; sync; tick 1 100; 1>2; all h = {'g': 'v'}; 2 HPTTL h f = -2
2 a field, others hide at once and delete after 500 ms: 1 HSET h g v; 1 HSETEX h 100 f v; sync; tick 2 599; 2 HPTTL h f = -2; 1<2.1; 1 HPTTL h f = 100; tick 2 1; 1<2.1; 1 HPTTL h f = -2
2 the hash goes with its last field: 1 HSETEX h 100 f v; 1 HSETEX h 200 g v; sync; tick 1 200; 1>2; * GET h = None; gone 0
2 stale expiry of a field, newer HSET: 1 HSETEX h 100 f v; sync; 1 HSET h f w; tick 2 9000; sync; all h = {'f': 'w'}
2 the same by full sync: 1 HSETEX h 100 f v; sync; 1 HSET h f w; tick 2 9000; forget; sync; all h = {'f': 'w'}
2 stale expiry of a field, HPERSIST: 2 HSETEX h 100 f v; sync; 2 HPERSIST h f; tick 1 9000; sync; all h = {'f': 'v'}; * HPTTL h f = -1
2 the same by full sync: 2 HSETEX h 100 f v; sync; 2 HPERSIST h f; tick 1 9000; forget; sync; all h = {'f': 'v'}; * HPTTL h f = -1
2 a late deadline of a field ends what its author saw: 2 HSET h f u; 2 HEXPIRE h 1 f; tick 1 5000; 1 HSET h f w; 2>1; sync; all h = {'f': 'w'}
2 a write after the deadline that it has not seen: 1 HSET h f v; sync; 1 HEXPIRE h 1 f; tick 2 5000; 2 HSET h f w; 1<2.1; 1 HPTTL h f = -1; sync; all h = {'f': 'w'}
3 another type does not come back with the last field: 1 SADD k m; tick 2 5; 2 HSETEX k 1000 f v; sync; gc 1 2; tick 2 1000; sync; gone 0
2 HINCRBY, expiry of the field: 1 HINCRBY h f 1; 1 HEXPIRE h 2 f; sync; 2 HINCRBY h f 1; tick 1 9000; sync; * HPTTL h f = -2; gone 0
2 HINCRBY, HDEL, the deadline stays: 1 HINCRBY h f 1; 1 HEXPIRE h 2 f; sync; 1 HDEL h f; 2 HINCRBY h f 1; sync; all h = {'f': '1@1002000'}; gone 2000
2 a field expires, others live on: 1 HSETEX h 100 f v; sync; 2 HSET h g w; tick 1 700; sync; all h = {'g': 'w'}
2 EXPIRE saves the hash and its fields' deadlines: 2 HSETEX h 9000 f v; 2 EXPIRE h 1; sync; 2 PERSIST h; tick 1 5000; sync; all h = {'f': 'v@1009000'}
2 HSET without the deadline that a field had: 1 HSETEX h 100 f v; tick 2 5; 2 SET h w; sync; 2 DEL h; sync; 1 HSET h f x; sync; all h = {'f': 'x'}
2 COPY takes deadlines of fields along: 1 HSETEX h 9000 f v; 1 HSET h g v; 1 COPY h d; sync; all d = {'f': 'v@1009000', 'g': 'v'}
2 automatic ids of two sites: 1 XADD k * f a; 2 XADD k * f b; 1 XADD k * f c; sync; all k = ['1000000-1=f:a', '1000000-2=f:b', '1000000-257=f:c', 'last=1000000-257']
2 the next id: 1 XADD k 5-9 f a; 1 XADD k 5-* f b; 1 XADD k 6-* f c; sync; 2 XADD k 6-* f d = 6-2; sync; all k = ['5-9=f:a', '5-257=f:b', '6-1=f:c', '6-2=f:d', 'last=6-2']
2 equal ids, lower gid: 2 XADD k 5-1 f b; 1 XADD k 5-1 f a; sync; all k = ['5-1=f:a', 'last=5-1']
2 XDEL, XADD of the same id: 1 XADD k 5-1 f a; sync; 1 XDEL k 5-1; 2 DEL k; 2 XADD k 5-1 f b; sync; all k = ['5-1=f:b', 'last=5-1']
2 XTRIM, XADD: 1 XADD k 5-1 f a; sync; 1 XTRIM k MAXLEN 0; 2 XADD k 5-2 f b; sync; all k = ['5-2=f:b', 'last=5-2']
2 XSETID, the highest: 1 XADD k 5-1 f a; sync; 2 XSETID k 9-0; tick 1 9; 1 XSETID k 7-0; sync; all k = ['5-1=f:a', 'last=9-0']
2 XSETID that saw the higher: 1 XADD k 5-1 f a; 1 XSETID k 9-0; sync; 2 XSETID k 6-0; sync; all k = ['5-1=f:a', 'last=6-0']
2 the last id outlives its entry: 1 XADD k 5-3 f a; 1 XDEL k 5-3; sync; all k = ['last=5-3']; 2 XADD k 5-* f b = 5-258
2 XDEL, DEL: 1 XADD k 5-1 f a; sync; 1 XDEL k 5-1; 2 DEL k; sync; gone 0
2 a stream that survived a DEL, emptied: 1 XADD k 5-1 f a; sync; 1 DEL k; 2 XADD k 5-2 f b; sync; 1 XDEL k 5-2; sync; all k = ['last=5-2']
3 a stream that was written again, survived a DEL, emptied: 2 XADD k 5-1 f a; 2 EXPIRE k 2; sync; 2 PERSIST k; 2 XADD k 5-2 f b; 2>3; tick 1 9000; 1>2; 3 DEL k; sync; all k = ['5-1=f:a', 'last=5-1']; 2 XDEL k 5-1; sync; all k = ['last=5-1']
3 the last id is here before the stream: 1 XADD k 5-1 f a; sync; 1 XADD k 5-9 f b; 1 XDEL k 5-9; 2 DEL k; 3 XADD k 5-2 f c; 1>2; 2 GET k = None; 3>2; sync; all k = ['5-2=f:c', 'last=5-9']
2 XADD, DEL, the deadline stays: 1 XADD k 5-1 f a; 1 EXPIRE k 2; sync; 1 DEL k; 2 XADD k 5-2 f b; sync; * PTTL k = 2000; gone 2000
2 stale expiry, PERSIST of a stream: 2 XADD k 5-1 f a; 2 XADD k 5-2 f b; 2 XDEL k 5-2; 2 EXPIRE k 2; sync; 2 PERSIST k; tick 1 9000; sync; all k = ['5-1=f:a', 'last=5-2']; * PTTL k = -1
2 a stream loses its name: 1 XADD k 5-1 f a; 1 XADD k 5-2 f b; 1 XDEL k 5-2; 1 RENAME k d; sync; all d = ['5-1=f:a', 'last=5-2']
2 MULTI in one piece: 1 MULTI SET a 1 | SET b 1 | DEL a; 2<1.2; 2<1.1; 2 GET b = None; 2<1.3; 2 GET b = 1; sync; * GET a = None; * GET b = 1
2 MULTI and a full sync: 1 MULTI SET a 1 | SET b 1; 2<1.1; forget; 1>2; sync; * GET a = 1; * GET b = 1
2 a crash takes what was not stored: 1 SET a 1; store 1; 1 SET a 2; 1 SET b 2; crash 1; 1 GET a = 1; 1 SET b 3; sync; * GET a = 1; * GET b = 3
2 a full sync is interrupted: 1 SET a 1; 1 SET b 1; 2 SET a 2; 2 SET c 3; 1~2 a; 2 GET b = None; crash 2; torn 2; 1>2; sync; * GET b = 1; * GET c = 3
3 a torn site names only deadlines that it knows: 3 SET k y PX 50; 2 SET k w PX 100; tick 1 10; 1 SET k v; 1<3.1; 2~1 k; tick 1 60200; 2>1; 3<1.1; 3<1.2; 3 DEL k; 3<2.1; 3 PERSIST k; sync; * GET k = None
3 a torn site knows a running total, but not up to its clock: 2 INCR k; sync; 1 EXPIRE k 1; 2 INCR k; 2~1 k; tick 1 2000; 2>1; 3<1.1; 3<1.2; sync; * GET k = None; gone 0
2 what an extension keeps alive survives an interrupted full sync: 2 HSET k f v; 2 EXPIRE k 2; sync; 2 PERSIST k; tick 1 9000; forget; 1~2 k; 1>2; sync; all k = {'f': 'v'}; * PTTL k = -1
2 the same of a field: 2 HSETEX h 100 f v; sync; 2 HPERSIST h f; tick 1 9000; forget; 1~2 h; 1>2; sync; all h = {'f': 'v'}
3 a torn site sends no full sync: 1 SET a 1; sync; 2 SET c 1; 1 DEL a; 1 SET b 1; 1~2 a; forget; 2>3; 3 GET a = 1; sync; * GET a = None; * GET b = 1
3 a full sync of a site that has less: 1 SET a 1; sync; 1 SET a 2; 1 SET b 2; 1~3 a; 2>3; torn 3; 2 DEL a; 1>3; sync; * GET a = 2; * GET b = 2
3 a crash takes what waited: 1 SET a 1; 1>2; 2 SET a 2; store 3; 3<2.1; crash 3; 1>3; 3 GET a = 1; sync; * GET a = 2
"""


class Stage:
    """Plays a named scenario, and writes what is done as World does."""

    def __init__(self, members, trace):
        self.sites, self.out, self.shown, self.disk = {}, trace, {}, {}
        self.trace("sites", len(members))
        self.sites.update({g: Site(g, members, 1_000_000) for g in members})
        self.store(*self.sites.values())

    def trace(self, *words):
        World.trace(self, *words)

    def store(self, *sites):
        for s in sites:
            self.trace("store", s.gid)
            self.disk[s.gid] = s.stored()

    def crash(self, s):
        self.trace("crash", s.gid, s.phys)
        s.crash(self.disk[s.gid])

    def deliver(self, a, b, e):
        self.store(a)
        self.trace("deliver", a.gid, b.gid, *e.dot)
        b.receive(e)

    def merge(self, a, b):
        self.store(a)
        self.trace("full", a.gid, b.gid)
        b.merge(a.snapshot())

    def tear(self, a, b, *names):
        self.store(a)
        self.trace("tear", a.gid, b.gid, *names)
        b.merge(a.snapshot(), names)
        self.store(b)

    def hear(self, b, a):
        self.store(a)
        self.trace("clock", a.gid, b.gid)
        b.hear(a.gid, a.clock)

    def link(self, a, b):
        effects = None if b.torn else a.since(b.clock)
        if effects is None and a.serves() and b.accepts(a.clock):
            self.merge(a, b)
        for e in effects or ():
            self.deliver(a, b, e)
        self.hear(b, a)

    def sync(self):
        for a, b in [(a, b) for a in self.sites.values() for b in self.sites.values() if a is not b] * 3:
            self.link(a, b)

    def tick(self, ms, *sites):
        for s in sites:
            self.store(s)
            self.trace("time", s.gid, s.now() + ms)
            s.tick(s.now() + ms)
            self.each("cron", s)

    def each(self, what, *sites):
        for s in sites:
            self.store(s)
            self.trace(what, s.gid)
            getattr(s, what)()

    def do(self, s, *argv):
        if argv[0] == "MULTI":
            self.trace("multi", s.gid, " ".join(argv[1:]).replace("|", ";"))
            return s.multi(*(cmd.split() for cmd in " ".join(argv[1:]).split("|")))
        self.trace("op", s.gid, *argv)
        return s.do(*argv)

    def join(self, gid, by):
        self.trace("admit", by.gid, gid)
        by.do("ADMIT", gid)
        self.sync()
        assert by.may_start(gid)
        self.trace("join", by.gid, gid, by.now())
        self.sites[gid] = Site(gid, phys=by.now())
        self.sites[gid].merge(by.snapshot())
        self.store(self.sites[gid])


def play(line, trace=None):
    title, steps = line.split(": ", 1)
    if trace:
        trace("history " + title[2:].replace(" ", "_"))
    stage = Stage(range(1, int(title[0]) + 1), trace)
    sites = stage.sites
    for step in steps.split("; "):
        (word, *args), want = step.split(" = ")[0].split(), step.partition(" = ")[2]
        if word == "sync":
            stage.sync()
        elif word[1:2] == ">":
            stage.link(sites[int(word[0])], sites[int(word[2])])
        elif word[1:2] == "~":
            stage.tear(sites[int(word[0])], sites[int(word[2])], *args)
        elif word[1:2] == "!":
            stage.hear(sites[int(word[0])], sites[int(word[2])])
        elif word[1:2] == "<":
            dot = tuple(int(x) for x in word[2:].split("."))
            for s in [s for s in sites.values() if dot in s.log]:
                stage.deliver(s, sites[int(word[0])], s.log[dot])
        elif word == "tick":
            stage.tick(int(args[1]), sites[int(args[0])])
        elif word == "torn":
            assert sites[int(args[0])].torn
        elif word in ("store", "crash"):
            getattr(stage, word)(sites[int(args[0])])
        elif word == "gc":
            stage.each("gc", *(sites[int(g)] for g in args or sites))
        elif word == "forget":
            for s in sites.values():
                s.log.clear()
        elif word == "join":
            stage.join(int(args[0]), sites[int(args[1])])
        elif word == "gone":
            for ms in (int(args[0]), EXPIRE_DELAY_MS):
                stage.tick(ms, *sites.values())
                stage.sync()
            for s in sites.values():
                stage.each("gc", s)
                assert not s.keys, (line, s.raw())
        else:
            for s in sites.values() if word in ("*", "all") else [sites[int(word)]]:
                got = str(s.view()[args[0]][1] if word == "all" else stage.do(s, *args))
                assert not want or got == want, (title, step, s.gid, got)
    stage.trace("end")


# ---------------------------------------------------------------- the random checker

class World:
    """Runs a script: tuples that hold every choice, so a script with lines taken out is still a script."""

    def __init__(self, script, trace=None):
        n, self.t, self.out, self.shown = script[0][0], 1_000_000, trace, {}
        self.history, self.sites, self.skew, self.dead, self.counted = {}, [], {}, {}, []
        self.crashes = any(act[0] == "crash" for act in script)
        self.disk = {}                               # gid -> what a crash leaves of a site with an open transaction
        self.trace("sites", n)
        self.born = set(range(1, n + 1))
        self.cut, self.next_gid, self.blocked = {}, n + 1, set()     # cut: evicted gid -> least and most seq kept
        for g in range(1, n + 1):
            self.add_site(Site(g, list(range(1, n + 1))))
        for act in script[1:]:
            getattr(self, "act_" + act[0])(*act[1:])
            self.watch()

    def begin(self, s):
        """Before a site changes: its transaction is open."""
        if s.gid not in self.disk:
            self.disk[s.gid] = s.stored() if self.crashes else None

    def store(self, *sites):
        """Commits: before anybody hears of it, before time goes on, and before garbage is collected."""
        for s in sites:
            if s.gid in self.disk:
                self.trace("store", s.gid)
                del self.disk[s.gid]

    def act_crash(self, i):
        s = self.sites[i % len(self.sites)]
        stored = self.disk.pop(s.gid, None) or s.stored()
        self.trace("crash", s.gid, self.t + self.skew[s.gid])
        s.crash(stored)
        s.tick(self.t + self.skew[s.gid])
        lost = {d for d in self.history if d[0] == s.gid and not seen(s.clock, d)}
        assert not any(seen(o.clock, d) or d in o.pending for o in self.sites for d in lost), "sent, but not stored"
        self.history = {d: e for d, e in self.history.items() if d not in lost}
        self.counted = [d for d in self.counted if d not in lost]
        self.dead = {who: n for who, n in self.dead.items() if who[0] != s.gid}

    def add_site(self, s):
        s.audit, self.skew[s.gid] = self.audit, 0
        self.sites.append(s)
        s.tick(self.t)

    def trace(self, *words):
        """Writes what is about to be done, after what the sites show since the last time."""
        if self.out:
            for s in self.sites.values() if isinstance(self.sites, dict) else self.sites:
                now = f"show {s.gid} {text_of(s)}"
                if self.shown.get(s.gid) != now:
                    self.shown[s.gid] = now
                    self.out(now)
            self.out(" ".join(map(str, words)))

    def audit(self, site, e):
        """Every effect, before its author applies it."""
        assert e.dot not in self.history, "dot used twice"
        self.history[e.dot] = e
        for m in e.moves:
            if m[0] == "clear" and m[3]:
                assert site.due(m[1]), "expiry of a key that is not due"
                dying = [d for d in self.fresh(site.keys[m[1]]) if seen(m[3], d)]
                assert not dying, f"a fresh write dies of a stale expiry: {m[1]} {dying}"
            elif m[0] == "fexpire":
                c = site.keys[m[1]].cells["hash", m[2]]
                assert c.due(site.now()), "expiry of a field that is not due"
                dying = [d for d in self.fresh_cell(c, c.deadline()) if seen(m[4], d)]
                assert not dying, f"a fresh write dies of a stale expiry: {m[1]} {m[2]} {dying}"

    def fresh(self, k):
        """Dots of the writes and increments in a key that are stamped at or after its deadline."""
        return [d for c in k.cells.values() for d in self.fresh_cell(c, k.deadline())]

    def fresh_cell(self, c, at):
        return [d for d, ts in [(d, w[0]) for d, w in c.writes.items()] +
                [((g, i[0]), self.history[g, i[0]].ts) for g, i in c.incs.items() if i[0] > i[2]] if ts >> 16 >= at]

    def watch(self):
        for s in self.sites:
            if s.torn:
                continue                             # it may show anything
            parts = [d for d in s.clock.items() if d[1] and MORE in self.history[d].moves]
            assert not parts, f"site {s.gid} has applied a part of a piece: {parts}"
            for name, k in s.keys.items():
                if k.ttl and s.due(name):
                    self.dead[s.gid, name] = s.touch[name]
                    assert not self.fresh(k), f"site {s.gid}: a stale deadline hides a fresh write: {name}"
                elif self.dead.get((s.gid, name)) == s.touch[name] and k.type():
                    raise AssertionError(f"site {s.gid}: {name} rose from the dead")
                for (_, p), c in k.cells.items():
                    if c.due(s.now()):
                        self.dead[s.gid, name, p] = s.touch[name]
                        assert not self.fresh_cell(c, c.deadline()), f"a stale deadline hides a fresh write: {name} {p}"
                    elif self.dead.get((s.gid, name, p)) == s.touch[name] and c.alive():
                        raise AssertionError(f"site {s.gid}: {name} {p} rose from the dead")

    def pair(self, i, j):
        a = i % len(self.sites)
        return self.sites[a], self.sites[(a + 1 + j % (len(self.sites) - 1)) % len(self.sites)]

    def open(self, a, b):
        return frozenset((a.gid, b.gid)) not in self.blocked

    def act_op(self, i, cmd):
        s = self.sites[i % len(self.sites)]
        if s.torn:
            return
        argv = [self.word(s, cmd, a) for a in cmd.split()]
        self.begin(s)
        self.trace("op", s.gid, *argv)
        try:
            s.do(*argv)
            self.counted += [(s.gid, s.clock[s.gid])] if cmd == "INCR count" else []
        except OpError:
            pass

    def word(self, s, cmd, a):
        """An argument: @50 is a time, #0 the first entry of a stream, #-1 the last, + an id after that."""
        if a[:1] not in "@#+":
            return a
        if a[:1] == "@":
            return str(self.t + int(a[1:]))
        k = s.look(cmd.split()[1])
        ids, last = s.stream(cmd.split()[1]) if k and k.type() == "stream" else ([], (0, 0))
        if a == "+":
            return text_of_id((last[0], last[1] + 1))
        return text_of_id(([last] + ids)[1 + int(a[1:]) if -1 <= int(a[1:]) < len(ids) and ids else 0])

    def act_multi(self, i, *cmds):
        s = self.sites[i % len(self.sites)]
        if s.torn:
            return
        argvs = [[self.word(s, cmd, a) for a in cmd.split()] for cmd in cmds]
        self.begin(s)
        self.trace("multi", s.gid, " ; ".join(" ".join(argv) for argv in argvs))
        s.multi(*argvs)
        self.history.update((d, e) for d, e in s.log.items() if d[0] == s.gid)

    def deliver(self, a, b, e):
        self.store(a)
        self.begin(b)
        self.trace("deliver", a.gid, b.gid, *e.dot)
        b.receive(e)

    def act_deliver(self, i, j, r):
        a, b = self.pair(i, j)
        got = [e for d, e in a.log.items() if not r & 3 or not seen(b.clock, d)]
        if got and self.open(a, b) and not b.torn:
            self.deliver(a, b, got[(r >> 3) % len(got) if r & 4 else 0])

    def act_link(self, what, i, j):
        getattr(self, what)(*self.pair(i, j))

    def full(self, a, b):
        if self.open(a, b) and a.serves() and b.accepts(a.clock):
            self.store(a)
            self.begin(b)
            self.trace("full", a.gid, b.gid)
            b.merge(a.snapshot())

    def act_tear(self, i, j, mask):
        """A full sync, in which the receiver is killed."""
        a, b = self.pair(i, j)
        if self.open(a, b) and a.serves() and b.accepts(a.clock):
            names = [n for at, n in enumerate(sorted({*a.keys, *b.keys})) if mask >> at & 1]
            self.store(a)
            self.begin(b)
            self.trace("tear", a.gid, b.gid, *names)
            b.merge(a.snapshot(), names)
            self.store(b)

    def sync(self, a, b):
        effects = None if b.torn else a.since(b.clock) if a.clock != b.clock else ()
        if effects is None:
            self.full(a, b)
        for e in effects or ():
            if self.open(a, b):
                self.deliver(a, b, e)

    def clock(self, a, b):
        if self.open(a, b):
            self.store(a)
            self.begin(b)
            self.trace("clock", a.gid, b.gid)
            b.hear(a.gid, a.clock)

    def act_each(self, what, i):
        s = self.sites[i % len(self.sites)]
        if what == "gc":
            self.store(s)
        self.begin(s)
        self.trace(what, s.gid)
        getattr(s, what)()

    def act_time(self, ms):
        self.t += ms
        self.store(*self.sites)
        self.trace("time", *[x for s in self.sites for x in (s.gid, self.t + self.skew[s.gid])])
        for s in self.sites:
            s.tick(self.t + self.skew[s.gid])

    def act_skew(self, i, ms):
        self.skew[self.sites[i % len(self.sites)].gid] = ms
        self.act_time(0)

    def act_cut(self, i, j):
        self.blocked ^= {frozenset(s.gid for s in self.pair(i, j))}

    def act_trim(self, i, n):
        s = self.sites[i % len(self.sites)]
        self.begin(s)
        for d in list(s.log)[:len(s.log) // (n + 1)]:
            del s.log[d]

    def act_join(self, i):
        a = self.sites[i % len(self.sites)]
        if a.torn:
            return
        ready = [g for g, d in a.members.items() if d[0] == a.gid and g not in self.born and a.may_start(g)]
        if ready:
            self.born.add(ready[0])
            self.store(a)
            self.trace("join", a.gid, ready[0], self.t)
            self.add_site(Site(ready[0]))
            self.begin(self.sites[-1])
            self.sites[-1].merge(a.snapshot())
            self.store(self.sites[-1])               # before it may write, or send
        elif len(self.sites) < 6:
            self.begin(a)
            self.trace("admit", a.gid, self.next_gid)
            a.do("ADMIT", self.next_gid)
            self.next_gid += 1

    def act_evict(self, i, j):
        a, z = self.pair(i, j)
        left = [s for s in self.sites if s is not z]
        rest = [s for s in left if s.gid in a.members]       # whom it asks; that must be all, see may_start
        if len(rest) > 1 and z.gid in a.members and not any(s.torn for s in left):
            self.store(*left)
            self.sites, self.blocked = left, set()
            fence = max(s.clock.get(z.gid, 0) for s in rest)
            self.cut[z.gid] = fence, fence           # what no survivor has is lost, of earlier evictions too
            self.cut = {g: (max(s.clock.get(g, 0) for s in rest), most) for g, (_, most) in self.cut.items()}
            for s in rest:
                self.begin(s)
            self.trace("fence", z.gid, fence)
            for s in rest:
                s.fence(z.gid, fence)
            self.store(*rest)
            for s in rest:
                s is a or self.sync(s, a)
            self.act_evicted(a, z.gid)

    def act_evicted(self, a, gid):
        self.begin(a)
        self.trace("evict", a.gid, gid)
        a.do("EVICT", gid)

    def settle(self):
        """Heals, exchanges everything, lets every expiry happen, collects garbage."""
        self.blocked, before = set(), None
        while before != [(s.clock, s.torn) for s in self.sites]:
            before = [(dict(s.clock), s.torn) for s in self.sites]
            for act in (self.sync, self.clock):
                for a in self.sites:
                    for b in self.sites:
                        a is b or act(a, b)
            for i in range(len(self.sites)):
                self.act_each("cron", i)
            assert max(s.clock.get(s.gid, 0) for s in self.sites) < 1000, "never quiet"
        for i in range(len(self.sites)):
            self.act_each("gc", i)

    def finish(self):
        """Now, and again when every TTL has run out, all sites must agree with each other and with the rules."""
        self.skew = dict.fromkeys(self.skew, 0)
        for step in (1_000, 100_000_000):
            self.t = max(s.now() for s in self.sites)
            self.act_time(step)
            self.settle()
            a = self.sites[0]
            for g in set(a.members) - {s.gid for s in self.sites}:
                self.act_evicted(a, g)               # admitted but never came, or its evictor went before anybody heard
                self.settle()
            self.watch()
            view, raw = a.view(), a.raw()
            for s in self.sites[1:]:
                assert s.view() == view, f"views differ: {a.gid} {view} | {s.gid} {s.view()}"
                assert s.raw() == raw, f"metadata differ: {a.gid} {raw} | {s.gid} {s.raw()}"
                assert s.members == a.members and s.clock == a.clock, "clocks or members differ"
            for g, (least, most) in self.cut.items():
                assert least <= a.clock.get(g, 0) <= most, f"the end of evicted site {g}"
            want = denote(self.history, a.clock, a.now())
            assert view == want, f"not what the rules say: {view} | {want}"
            assert int(get(a, "count") or 0) == sum(seen(a.clock, d) for d in self.counted), "lost increment"
            for name, k in a.keys.items():
                assert k.type() and len(k.head) == 1 and len(k.ttl) == (k.deadline() is not None) and not k.fired and \
                    all(c.alive() and len(c.writes) < 2 and x[0] == k.type() and not c.fired and
                        len(c.ttl) == (c.deadline() is not None) for x, c in k.cells.items()), f"garbage: {name}"
            assert not any(s.torn for s in self.sites), "a site stays torn"
            assert not any(s.pending for s in self.sites), "an effect was never applied"
        assert not any(x.ttl for k in a.keys.values() for x in (k, *k.cells.values())), "a TTL outlived its deadline"
        self.trace("end")


def text_of(s):
    """What a site shows and how much it keeps of each key: claims, TTL entries, marks of expiry, writes, counters."""
    view, out = s.view(), []
    for name, k in sorted(s.keys.items()):
        kind, value, at = view.get(name, ("none", "", None))
        value = value if isinstance(value, str) else \
            ",".join(value) if isinstance(value, list) else ",".join(f"{f}={v}" for f, v in sorted(value.items()))
        atoms = [len(k.head), *(sum(len(getattr(x, what)) for x in (k, *k.cells.values())) for what in ("ttl", "fired")), sum(len(c.writes) for c in k.cells.values()),
                 sum(len(c.incs) for c in k.cells.values())]
        out.append(f"{name} {kind} {value or '-'} {at or 0} {' '.join(map(str, atoms))}")
    return " | ".join([",".join(f"{g}:{n}" for g, n in sorted(s.clock.items()) if n)] + out)


def denote(history, clock, now):
    """The meaning of a history, from the bare set of effects and their contexts: an atom lives unless an effect
    that saw it removed it. No order, no merging, no running totals."""
    hist = [e for d, e in sorted(history.items()) if seen(clock, d)]
    out, kills, adds = Site(0, [0], now), {}, {}
    for e in hist:
        for m in e.moves:
            scope = m[0] == "clear" and m[3] or m[0] == "fexpire" and m[4]
            kills.setdefault(m[1], []).append((m, scope or e.ctx, e))
            if m[0] == "add":
                adds.setdefault((*m[1:4], e.dot[0]), []).append(e.dot[1])

    def ends(m, what, addr, kind):
        """Whether a move ends such an atom that it has seen."""
        if m[0] in ("clear", "flush"):
            return True
        if m[0] == "fexpire" and what == "claim":
            return m[5] and kind != "hash"
        if m[0] in ("fexpire", "rem") and addr:
            return addr == (("hash", m[2]) if m[0] == "fexpire" else m[2:4])
        if what in ("fttl", "fkeep"):
            return m[0] in (what, "fttl", "fdrop") and m[2] == addr[1]
        return m[0] == what != "add" and not addr or what == "keep" and m[0] == "ttl" or m[0] == "put" and m[2:4] == addr

    def lives(e, name, what, addr, kind):
        for m, ctx, f in kills.get(name, []) + kills.get("", []):
            if m[0] == "fspend" and what in ("fttl", "fkeep") and addr[1] == m[2] and e.dot in m[3]:
                return False
            if m[0] == "spend" and (what in ("ttl", "keep") and e.dot in m[2] or what == "put" and
                                    addr == ("string", "") and e.dot in m[3]):
                return False
            if seen(ctx, e.dot) and ends(m, what, addr, kind):
                g = e.dot[0]
                if what != "add" or max(s for s in adds[name, *addr, g] if s <= f.ctx[g]) <= ctx[g]:
                    return False                     # an expiry cannot split a site's running total
        return True
    for e in hist:
        for m in e.moves:
            if m[0] not in ("claim", "put", "add", "ttl", "keep", "fttl", "fkeep"):
                continue
            addr = m[2:4] if m[0] in ("put", "add") else ("hash", m[2]) if m[0] in ("fttl", "fkeep") else None
            if lives(e, m[1], m[0], addr, m[2]):
                k, m = out.key(m[1]), m + (None,) * 3
                c = k.cell(*addr) if addr else None
                if m[0] == "claim":
                    k.head[e.dot] = (m[3] or e.ts, m[2])
                elif m[0] == "put":
                    c.writes[e.dot] = (m[6] or e.ts, m[4], m[7] or e.dot)
                elif m[0] == "add":
                    c.incs[e.dot[0]] = (e.dot[1], c.incs.get(e.dot[0], (0, 0))[1] + m[6], 0, 0, None)
                elif addr:
                    c.ttl[e.dot] = ("E" if m[0] == "fttl" else "K", m[3])
                else:
                    k.ttl[e.dot] = ("E" if m[0] == "ttl" else "K", m[2], m[3])
    return out.view()


FORMS = """SET k v|SET k v PX t|SET k v KEEPTTL|SET k n|SET k n PX t|DEL k|INCR k|INCRBY k i|INCRBYFLOAT k h|APPEND k v|
HSET k f v|HSET k f v f v|HDEL k f|HINCRBY k f i|SADD k f f|SREM k f|ZADD k h f|ZINCRBY k h f|ZREM k f|RPUSH k v v|LPUSH k v|
LPOP k|RPOP k|LINSERT k BEFORE v v|LINSERT k AFTER v v|LSET k x v|LTRIM k x x|EXPIRE k s|EXPIRE k s|EXPIRE k s|
PEXPIREAT k T|PERSIST k|PERSIST k|RENAME k k|COPY k k|FLUSHALL""".replace("\n", "").split("|")


FIELDS = """HSET k f v|HSET k f v f v|HSET k f n|HDEL k f|HINCRBY k f i|HEXPIRE k s f|HEXPIRE k s f|HEXPIRE k s f f|HPEXPIREAT k T f|
HPERSIST k f|HPERSIST k f|HSETEX k t f v|HSETKEEP k f v""".replace("\n", "").split("|")


STREAMS = """XADD k * f v|XADD k * f v|XADD k * f v|XADD k * f v|XADD k I f v|XADD k I f v|XADD k 6-* f v|XDEL k D|XDEL k D D|
XDEL k D|XTRIM k MAXLEN 0|XTRIM k MAXLEN 2|XTRIM k MINID D|XSETID k I|MKSTREAM k""".replace("\n", "").split("|")


def make_script(seed):
    r = random.Random(seed)
    keys, scale = "abc"[:r.choice((1, 1, 2, 3))], r.choice((50, 500, 3000))
    lo = r.choice((0, 0, 0, 10, 14, 16, 19))
    forms = FORMS if r.random() < .5 else FORMS[lo:lo + r.choice((4, 8, 10))] + FORMS[27:33] + FORMS[1:6:4]
    if r.random() < .25:
        forms = STREAMS * r.choice((1, 3)) + FORMS[26:34] + FORMS[1:6:4] + FORMS[r.choice((8, 19)):][:r.choice((0, 1))]
    if seed % 5 == 4:                                # and not by r: the histories of the other seeds stay as they are
        forms = FIELDS * r.choice((1, 2, 4)) + FORMS[27:36 if r.random() < .7 else 33] + FORMS[1:6:4] + forms[:r.choice((0, 0, 6))]
    words = {"k": keys, "v": "uvwxyz", "I": ("5-1", "5-2", "+", "+"), "D": ("#0", "#0", "#-1", "#-1", "#1", "5-1"), "f": "fgh", "n": (0, 10, 50), "i": (-2, 1, 5), "h": (.5, -1.25, 2), "x": (-2, -1, 0, 1, 2),
             "t": [n * scale for n in range(1, 5)], "s": [n * scale / 1000 for n in range(1, 9)],
             "T": [f"@{n * scale}" for n in range(-1, 7)]}
    weights = {"op": 36, "deliver": 25, "sync": 10, "full": r.choice((0, 2, 6)), "clock": 8, "cron": 6, "gc": 6, "time": 12,
               "skew": r.choice((0, 3)), "multi": r.choice((0, 0, 5)),
               "crash": r.choice((0, 0, 0, 4)), "cut": 2, "trim": r.choice((0, 2)), "join": r.choice((0, 0, 1)), "evict": r.choice((0, 0, .7))}
    script, flush = [(r.choice((2, 2, 3, 3, 3, 4, 5)),)], r.random() < .1
    tears = random.Random(seed) if seed % 4 == 1 else None
    for act in r.choices(list(weights), list(weights.values()), k=r.choice((15, 25, 40, 60))):
        i, j = r.randrange(60), r.randrange(60)
        if tears and tears.random() < .08:
            script.append(("tear", tears.randrange(60), tears.randrange(60), tears.randrange(8)))
        if act in ("op", "multi"):
            cmds = [" ".join(str(r.choice(words[w])) if w in words else w for w in r.choice(forms).split())
                    for _ in range(1 if act == "op" else r.choice((2, 2, 3)))]
            cmds = ["GET a" if cmd == "FLUSHALL" and not flush else cmd for cmd in cmds]
            script.append((act, i, *(["INCR count"] if act == "op" and not flush and r.random() < .08 else cmds)))
        else:
            script.append({"cron": ("each", act, i), "gc": ("each", act, i), "join": (act, i), "crash": (act, i),
                           "time": (act, r.choice((1, 10, scale, scale * 2, 600))), "trim": (act, i, j % 3),
                           "skew": (act, i, r.randint(-10_000, 10_000)),
                           "deliver": (act, i, j, r.randrange(256)), "cut": (act, i, j), "evict": (act, i, j)}
                          .get(act, ("link", act, i, j)))
    return script


def fails(script):
    try:
        World(script).finish()
    except Exception as err:                         # a model that trips over itself has failed too
        return f"{type(err).__name__}: {err}"


def shrink(script):
    size = len(script) // 2
    while size:
        i = 1
        while i < len(script):
            less = script[:i] + script[i + size:]
            script, i = (less, i) if fails(less) else (script, i + size)
        size //= 2
    return script


def check(n, first=0):
    """Number of histories until the first failure (shrunk and printed), or None."""
    for seed in range(first, first + n):
        if seed > first and seed % 5000 == 0:
            print(f"{seed - first} histories", file=sys.stderr, flush=True)
        script = make_script(seed)
        if fails(script):
            script = shrink(script)
            print(f"seed {seed}: {fails(script)[:300]}", *script, sep="\n    ")
            return seed - first + 1


# ---------------------------------------------------------------- planted bugs

def max_ttl(s, e, name, at, birth):
    k = s.key(name)
    k.ttl = {e.dot: ("E", max(at or 0, k.deadline() or 0) or None, None)}


def persist_all(s, e, name, at, birth, right=Site.do_ttl):
    if at is None:
        s.key(name).ttl.clear()
    right(s, e, name, at, birth)


def coarse_add(s, e, name, kind, path, prev, prev_total, delta, fresh):
    s.key(name).cell(kind, path).incs[e.dot[0]] = (e.dot[1], prev_total + delta, 0, 0, None)


def last_field_ttl(s, e, name, path, at):
    s.key(name).cell("hash", path).ttl = {e.dot: ("E", at)}


def expire_and_forget(s, e, name, path, obs, scope, shows, right=Site.do_fexpire):
    right(s, e, name, path, obs, scope, shows)
    s.after = [a for a in s.after if a[3] is None]


def join_dead_fields(s, piece, right=Site.apply_remote):
    expire, s.expire_fields = s.expire_fields, lambda name, paths, late=None: late and expire(name, paths, late)
    right(s, piece)
    del s.expire_fields


def xadd_entry_only(s, name, at, *fields, right=Site.xadd):
    commit = s.commit
    s.commit = lambda moves: commit([m for m in moves if m[0] != "put" or m[3] != ()])
    try:
        return right(s, name, at, *fields)
    finally:
        del s.commit


def xcut_entries_only(s, name, gone, right=Site.xcut):
    commit = s.commit
    s.commit = lambda moves: commit([m for m in moves if m[0] != "put" or m[3] != ()])
    try:
        return right(s, name, gone)
    finally:
        del s.commit


def claim_by_last_id(k, right=Key.claim):
    top = right(k)
    return top or (max(k.head.items(), key=rank, default=None) if LAST in k.cells else None)


BUGS = {
    "expiry deletes unconditionally": (Site, "do_clear", lambda s, e, n, o, scope=None, right=Site.do_clear:
                                       right(s, e, n, o, scope and dict.fromkeys(range(99), 1 << 60))),
    "TTL is a single register, longest wins": (Site, "do_ttl", max_ttl),
    "garbage goes when this site has seen it": (Site, "stable_clock", lambda s: s.clock),
    "PERSIST is unconditional": (Site, "do_ttl", persist_all),
    "equal stamps: first come wins": (None, "rank", lambda item: item[1][0]),
    "a clock counts before its effects are here": (Site, "hear", lambda s, gid, clock: gid in s.members and
                                                   s.acks.update({gid: join(s.acks.get(gid, {}), clock)})),
    "a site joins before all know of it": (Site, "may_start", lambda s, gid: True),
    "effects apply in FIFO, not causal order": (Site, "ready_for", lambda s, e: s.clock.get(e.dot[0], 0) == e.dot[1] - 1),
    "a DEL does not subtract what it saw of a counter": (Site, "do_add", coarse_add),
    "automatic ids without a gid": (Site, "next_id", lambda s, ms, last: (ms, 0) if ms > last[0] else
                                    (last[0], last[1] + 1)),
    "the last id is that of the last who set it": (None, "by_value", rank),
    "a last id keeps a stream": (Key, "claim", claim_by_last_id),
    "XADD does not say that there is a stream now": (Site, "xadd", xadd_entry_only),
    "XDEL leaves a stream without a cell": (Site, "xcut", xcut_entries_only),
    "XDEL forgets the last id": (Site, "xcut", lambda s, name, gone: s.remove(name, "stream", gone)),
    "a MULTI is applied in parts": (Site, "piece", lambda s, e: [e] if s.ready_for(e) else None),
    "effects are sent before they are stored": (World, "store", lambda self, *sites: None),
    "a crash keeps the clock, but not the data": (Site, "crash", lambda s, stored, right=Site.crash:
                                                  right(s, {**stored, "clock": s.clock})),
    "a plain HSET leaves the deadline to the field": (Site, "field_moves", lambda s, name, path, c, stays, right=Site.field_moves:
                                                      right(s, name, path, c, stays) if stays else []),
    "HINCRBY does not carry the field's deadline along": (Site, "field_moves", lambda s, name, path, c, stays,
                                                          right=Site.field_moves: [] if stays and c and c.alive() else
                                                          right(s, name, path, c, stays)),
    "the last HEXPIRE or HPERSIST replaces all": (Site, "do_fttl", last_field_ttl),
    "the expiry of a field is unconditional": (Site, "do_fexpire", lambda s, e, n, p, obs, scope, shows, right=Site.do_fexpire:
                                               right(s, e, n, p, obs, dict.fromkeys(range(99), 1 << 60), shows)),
    "an extension of a field does not write again": (Site, "do_fexpire", expire_and_forget),
    "a late deadline of a field ends everything": (Site, "expire_fields", lambda s, name, paths, late=None,
                                                   right=Site.expire_fields: right(s, name, paths)),
    "a write joins a field that is past its deadline": (Site, "apply_remote", join_dead_fields),
    "another type comes back when the last field expires": (Site, "do_fexpire", lambda s, e, n, p, obs, scope, shows,
                                                            right=Site.do_fexpire: right(s, e, n, p, obs, scope, False)),
    "a torn site refers to what it can't know": (Site, "known", lambda s, dot: True),
    "a torn site expires counters of which it knows a part": (Site, "counts", lambda s, *cells: True),
    "any full sync makes a torn site complete": (Site, "accepts", lambda s, clock: True),
    "an interrupted full sync takes what an extension keeps alive": (Site, "rescues", lambda s, name, theirs: False),
    "a torn site sends full syncs": (Site, "serves", lambda s: True),
    "a crash makes a torn site complete": (Site, "crash", lambda s, stored, right=Site.crash:
                                           right(s, {**stored, "torn": False, "torn_upto": {}})),
    "a late deadline ends everything": (Site, "expire_if_due", lambda s, name, late=None, right=Site.expire_if_due:
                                        right(s, name)),
}


# A history in which a site that joined too early is unknown to the one that evicts: they never agree on the members again.
EARLY_JOIN = [(5,), ("join", 54), ("evict", 24, 12), ("join", 27), ("join", 46), ("deliver", 51, 46, 91), ("evict", 47, 11)]


def breaks(line):
    """What a named scenario comes to while a bug is planted, or None."""
    try:
        play(line)
    except Exception as err:
        return f"{type(err).__name__}: {err}"


def bugs(limit=20_000):
    """Whether one is not found."""
    missed = False
    for what, (where, name, wrong) in BUGS.items():
        where = where or sys.modules[__name__]
        right = getattr(where, name)
        setattr(where, name, wrong)
        print(f"--- {what}")
        named = [line.split(":")[0][2:] for line in SCENARIOS.strip().splitlines() if breaks(line)]
        named += ["EARLY_JOIN"] if fails(EARLY_JOIN) else []
        n = None if named else check(limit)
        print(f"=== {what}: " + (f"found by {named}" if named else f"found in history {n}" if n else f"NOT found in {limit}"),
              flush=True)
        setattr(where, name, right)
        missed |= not (named or n)
    return missed


def main(argv):
    mode, args = (argv[0], [int(a) for a in argv[1:]]) if argv else ("", [])
    if mode == "--trace":
        for seed in range(args[0], args[0] + (args[1] if len(args) > 1 else 1)):
            print("history", seed)
            World(make_script(seed), trace=print).finish()
    elif mode == "--trace-scenarios":
        for line in SCENARIOS.strip().splitlines():
            play(line, print)
    elif mode == "--bugs":
        return bugs(*args)
    else:
        for line in [] if mode else SCENARIOS.strip().splitlines():
            play(line)
            print("ok  " + line.split(":")[0][2:])
        began, n = time.time(), (args or [2000])[0]
        bad = check(*(args or [n]))
        print(f"{bad or n} histories, {'one failed' if bad else 'all hold'}, {time.time() - began:.0f} s")
        return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
