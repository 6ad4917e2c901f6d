#!/usr/bin/env python3
"""Proves that tests find broken rules: breaks each rule of placement and of regions in turn, builds the test of that file, and fails
if it passes, or if a rule is not where it was.

    broken_rules.py --compile 'gcc -Isrc …' --link 'libmayfly.a …' [--only word]
"""
import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SECONDS = 60    # a test that does not end has found something, too

# By file: what it says, and what is said instead.
REGION_RULES = [
    ('t->region == region && (t->into || peer <= t->peer)', 't->region == region && (t->into || peer < t->peer)'),
    ('t->region == region && (t->into || peer <= t->peer)', 't->region == region && peer <= t->peer'),
    ('t->region == region && (t->into || peer <= t->peer)', 't->region == region && t->into'),
    ('t->region == region && (t->into || peer <= t->peer)', 't->into || peer <= t->peer'),
    ('h->tombstones[i].region == region && h->tombstones[i].into)', 'h->tombstones[i].region == region)'),
    ('if (!into || !into->has_data) return true;', 'if (!into) return true;'),
    ('if (!into || !into->has_data) return true;', 'if (!into || !into->has_data) return false;'),
    ('(t->into == jumps ? MAX(has, version) : has) >= t->version', 'has >= t->version'),
    ('(t->into == jumps ? MAX(has, version) : has) >= t->version', 'MAX(has, version) >= t->version'),
    ('(t->into == jumps ? MAX(has, version) : has) >= t->version', '(t->into == jumps ? MAX(has, version) : has) > t->version'),
    ('        region = t->into;\n', '        return false;\n'),
    ('if (rules_merged(h, source)) return false;', ''),
    ('(t && t->version > version) || rules_merged(h, target)', '(t && t->version >= version) || rules_merged(h, target)'),
    ('(t && t->version > version) || rules_merged(h, target)', 't && t->version > version'),
    ('(t && t->version > version) || rules_merged(h, target)', 'rules_merged(h, target)'),
    ('m->region == region || !m->has_data ||', '!m->has_data ||'),
    ('m->region == region || !m->has_data ||', 'm->region == region ||'),
    ('!m->has_data || !raft_slots_overlap(m->slots, slots)', '!m->has_data'),
    ('if (!rules_over(h, m->region, region, version)) return true;', 'return true;'),
    ('if (!rules_over(h, m->region, region, version)) return true;', ''),
    ('if (rules_buried(h, region, to)) return REGION_IGNORE;', ''),
    ('if (m && m->peer == to) return REGION_DELIVER;', 'if (m) return REGION_DELIVER;'),
    ('m->peer < to ? REGION_REPLACE : REGION_IGNORE', 'REGION_REPLACE'),
    ('m->peer < to ? REGION_REPLACE : REGION_IGNORE', 'REGION_IGNORE'),
    ('slots && !rules_taken(h, region, *slots, 0)', 'slots'),
    ('slots && !rules_taken(h, region, *slots, 0)', '!slots || !rules_taken(h, region, *slots, 0)'),
    ('slots && !rules_taken(h, region, *slots, 0)', 'false && slots'),
    ('rules_buried(h, child, peer) || (m && m->peer > peer)', 'm && m->peer > peer'),
    ('rules_buried(h, child, peer) || (m && m->peer > peer)', 'rules_buried(h, child, peer)'),
    ('m ? REGION_SPLIT_TAKE_OVER : REGION_SPLIT_MAKE', 'REGION_SPLIT_MAKE'),
    ('m ? REGION_SPLIT_TAKE_OVER : REGION_SPLIT_MAKE', 'REGION_SPLIT_TAKE_OVER'),
    ('rules_has(c->voters, c->voters_n, peer) || ', ''),
    ('rules_has(c->learners, c->learners_n, peer) ||\n', '\n'),
    ('rules_has(c->outgoing, c->outgoing_n, peer) ||\n', '\n'),
    ('||\n           rules_has(c->learners_next, c->learners_next_n, peer)', ''),
    ('peer_conf_ver(peer) < (conf_ver & PEER_CONF_VER_MAX) &&', 'peer_conf_ver(peer) <= (conf_ver & PEER_CONF_VER_MAX) &&'),
    ('peer_conf_ver(peer) < (conf_ver & PEER_CONF_VER_MAX) &&', ''),
    ('&& !rules_has_peer(conf, peer)', ''),
    ('if (others || a->voters_n != b->voters_n) return false;', 'if (others) return false;'),
    ('if (others || a->voters_n != b->voters_n) return false;', 'if (a->voters_n != b->voters_n) return false;'),
    ('a->learners_n || a->outgoing_n', 'a->outgoing_n'),
    ('a->outgoing_n || a->learners_next_n', 'a->learners_next_n'),
    ('b->learners_n || b->outgoing_n', 'b->outgoing_n'),
    ('b->outgoing_n ||\n', '\n'),
    ('if (!rules_voter_on(b, node_of(a->voters[i]))) return false;', ''),
]
SCHEDULE = [
    ('t->now_ms - n->heard_ms > t->dead_after_ms', 't->now_ms - n->heard_ms >= t->dead_after_ms'),
    ('t->now_ms - n->heard_ms > t->dead_after_ms', 'false'),
    ('t->now_ms > n->heard_ms && ', ''),
    ('!p->tally[i].dead && !n->away && !n->draining', '!n->away && !n->draining'),
    ('!p->tally[i].dead && !n->away && !n->draining', '!p->tally[i].dead && !n->draining'),
    ('!p->tally[i].dead && !n->away && !n->draining', '!p->tally[i].dead && !n->away'),
    ('stay += !n->draining;', 'stay++;'),
    ('MAX(MIN(t->voters, stay), 1u)', 't->voters'),
    ('i == p->t->nodes_n || p->t->nodes[i].draining', 'i < p->t->nodes_n && p->t->nodes[i].draining'),
    ('(u64)n->dead << 42 | ', ''),
    ('(u64)plan_draining(p, r->voters[i]) << 41 |\n', '\n'),
    ('(u64)plan_astray(p, r, r->voters[i]) << 40 | ', ''),
    ('(u64)n->members << 2 |\n', '\n'),
    ('(r->voters[i] != r->leader) << 1 | 1', '1'),
    ('n->members++, n->incoming++, p->moves++;\n    }\n    if (r->leader)',
     'n->members++, p->moves++;\n    }\n    if (r->leader)'),
    ('n->members++, n->incoming++, p->moves++;\n    }\n    if (r->leader)',
     'n->members++, n->incoming++;\n    }\n    if (r->leader)'),
    ('n->members++, n->incoming++, p->moves++;\n    }\n    if (r->leader)',
     'n->incoming++, p->moves++;\n    }\n    if (r->leader)'),
    ('if (r->leader) plan_tally(p, r->leader)->leaders++;', ''),
    ('if (!r->learners_n || r->voters_n < p->wanted) continue;', 'if (!r->learners_n) continue;'),
    ('        plan_tally(p, p->victims[i])->members--;\n', ''),
    ('a->slots.last + 1 != b->slots.first || ', ''),
    ('MIN(a->bytes, b->bytes) >= t->merge_bytes', 'a->bytes >= t->merge_bytes'),
    ('(t->merged_bytes && bytes > t->merged_bytes) || ', ''),
    ('|| (t->merged_load && load > t->merged_load)', ''),
    ('return plan_steady(p, a) && plan_steady(p, b);', 'return plan_steady(p, a);'),
    ('return plan_steady(p, a) && plan_steady(p, b);', 'return plan_steady(p, b);'),
    ('r->settled && !r->merging && r->leader && r->voters_n;', '!r->merging && r->leader && r->voters_n;'),
    ('r->settled && !r->merging && r->leader && r->voters_n;', 'r->settled && r->leader && r->voters_n;'),
    ('steady &= plan_tally(p, r->voters[i])->usable;', ''),
    ('regions - MIN(regions, t->regions_min)', 'regions'),
    ('MIN(spare, t->merges_max - MIN(t->merges_max, merging))', 'spare'),
    ('MIN(spare, t->merges_max - MIN(t->merges_max, merging))', 'MIN(spare, t->merges_max)'),
    ('p->paired[low] || p->paired[high] || ', ''),
    ('plan_same_voters(a, b) != same || ', ''),
    ('if (a->bytes < b->bytes) p->into[low]', 'if (a->bytes > b->bytes) p->into[low]'),
    ('if (p->moves >= p->t->moves_max) return NULL;', ''),
    ('!n->usable || n->incoming >= p->t->moves_node_max || plan_is_on', 'n->incoming >= p->t->moves_node_max || plan_is_on'),
    ('!n->usable || n->incoming >= p->t->moves_node_max || plan_is_on', '!n->usable || plan_is_on'),
    (' || plan_is_on(r, p->t->nodes[i].node)) continue;', ') continue;'),
    ('n->members < p->tally[best].members', 'n->members > p->tally[best].members'),
    ('    n->members++, n->incoming++, p->moves++;\n    if (victim)', '    n->incoming++, p->moves++;\n    if (victim)'),
    ('    n->members++, n->incoming++, p->moves++;\n    if (victim)', '    n->members++, p->moves++;\n    if (victim)'),
    ('    n->members++, n->incoming++, p->moves++;\n    if (victim)', '    n->members++, n->incoming++;\n    if (victim)'),
    ('    if (victim) plan_tally(p, victim)->members--;', ''),
    ('v == r->leader || !plan_tally(p, v)->usable', 'v == r->leader'),
    ('plan_tally(p, v)->leaders < plan_tally(p, best)->leaders', 'plan_tally(p, v)->leaders > plan_tally(p, best)->leaders'),
    ('if (gone != r->leader) return false;', 'return false;'),
    ('plan_tally(p, r->leader)->leaders--, plan_tally(p, heir)->leaders++;\n', '\n'),
    ('if (plan_must_go(p, learner)) {', 'if (false) {'),
    ('victim && !plan_must_go(p, victim) && !plan_astray(p, r, victim) &&', 'victim && !plan_astray(p, r, victim) &&'),
    ('victim && !plan_must_go(p, victim) && !plan_astray(p, r, victim) &&', 'victim && !plan_must_go(p, victim) &&'),
    ('plan_tally(p, victim)->members + 1 <= plan_tally(p, learner)->members - 1;', 'false;'),
    ('plan_tally(p, victim)->members + 1 <= plan_tally(p, learner)->members - 1;',
     'plan_tally(p, victim)->members <= plan_tally(p, learner)->members;'),
    ('if (!heir) return r->voters_n > 1;', 'if (!heir) return false;'),
    ('if (victim && plan_hand_on(p, i, victim)) return;', ''),
    ('if (victim == r->leader) victim = 0;', ''),
    ('if (!plan_must_go(p, victim)) return false;', ''),
    ('if (!plan_must_go(p, victim)) return false;', 'return false;'),
    ('if (r->voters_n > p->wanted) {\n        if (!plan_hand_on', 'if (false) {\n        if (!plan_hand_on'),
    ('if (r->voters_n > p->wanted) {\n        u64 victim', 'if (false) {\n        u64 victim'),
    ('r->voters_n < p->wanted ? plan_target(p, r) : NULL', 'NULL'),
    ('if (!to || r->voters_n != p->wanted || plan_must_go(p, victim)) return;', 'return;'),
    ('if (has < gets + 2) return;', 'if (has < gets + 1) return;'),
    ('if (has < gets + 2) return;', 'if (has < gets + 3) return;'),
    ('!p->done[i] && !r->changing && r->leader && r->voters_n && !r->learners_n',
     '!r->changing && r->leader && r->voters_n && !r->learners_n'),
    ('!p->done[i] && !r->changing && r->leader && r->voters_n && !r->learners_n',
     '!p->done[i] && r->leader && r->voters_n && !r->learners_n'),
    ('!p->done[i] && !r->changing && r->leader && r->voters_n && !r->learners_n',
     '!p->done[i] && !r->changing && r->voters_n && !r->learners_n'),
    ('!p->done[i] && !r->changing && r->leader && r->voters_n && !r->learners_n',
     '!p->done[i] && !r->changing && r->leader && r->voters_n'),
    ('!plan_idle(p, i) || p->paired[i] || plan_index', '!plan_idle(p, i) || plan_index'),
    ('!p->tally[to].usable || p->tally[to].seen', 'p->tally[to].seen'),
    ('p->tally[queue[i]].leaders + 2 <= p->tally[first].leaders', 'p->tally[queue[i]].leaders + 1 <= p->tally[first].leaders'),
    ('p->tally[queue[i]].leaders + 2 <= p->tally[first].leaders', 'p->tally[queue[i]].leaders + 3 <= p->tally[first].leaders'),
    ('else plan_spread(p, queue[i], queue, &queue_n);', 'else if (!i) plan_spread(p, queue[i], queue, &queue_n);'),
    ('k < into->voters_n && p->moves < p->t->moves_max;', 'k < into->voters_n;'),
    (' || p->tally[at].incoming >= p->t->moves_node_max)\n', ')\n'),
    ('if (!plan_same_voters(r, into)) {', 'if (false) {'),
    ('} else if (plan_idle(p, k)) {', '} else {'),
    ('r->learners_n && r->leader && r->voters_n && !r->changing && p->n < p->max',
     'r->learners_n && r->voters_n && !r->changing && p->n < p->max'),
    ('r->learners_n && r->leader && r->voters_n && !r->changing && p->n < p->max',
     'r->learners_n && r->leader && r->voters_n && p->n < p->max'),
    ('r->learners_n && r->leader && r->voters_n && !r->changing && p->n < p->max',
     'r->learners_n && r->leader && r->voters_n && !r->changing'),
    ('!t->split_bytes || r->bytes <= t->split_bytes || ', ''),
    (' || r->slots.first == r->slots.last) continue;', ') continue;'),
    ('i < t->regions_n && !t->uneven; i++)', 'i < t->regions_n; i++)'),
    ('if (plan_idle(&p, i) && !p.paired[i]) plan_even', 'if (plan_idle(&p, i)) plan_even'),
    ('if (!t->uneven) plan_leaders(&p);', 'plan_leaders(&p);'),
    ('if (!t->uneven) plan_leaders(&p);', ''),
]
MERGE_RULES = [
    ('if (!raft_slots_adjoin(t->at.slots, s->at.slots)) return MERGE_NOT_NEIGHBOURS;', ''),
    ('t->at.merge.role || t->core.conf_pending || t->epoch_pending', 't->core.conf_pending || t->epoch_pending'),
    ('t->at.merge.role || t->core.conf_pending || t->epoch_pending', 't->at.merge.role || t->epoch_pending'),
    ('s->at.merge.role || s->core.conf_pending || s->epoch_pending', 's->core.conf_pending || s->epoch_pending'),
    ('s->at.merge.role || s->core.conf_pending || s->epoch_pending', 's->at.merge.role || s->epoch_pending'),
    ('rules_same_nodes(&t->at.conf, &s->at.conf) ? MERGE_BEGUN : MERGE_OTHER_NODES', 'MERGE_BEGUN'),
    ('!group_is_leader(target->group) || !group_is_leader(source->group)) return MERGE_LEADERS',
     '!group_is_leader(target->group)) return MERGE_LEADERS'),
    ('if (!group_all_have(source->group, near)) return MERGE_LATER;', ''),
    ('t->core.conf_pending || t->epoch_pending', 't->core.conf_pending'),
    ('s->core.conf_pending || s->epoch_pending', 's->core.conf_pending'),
    ('if (!group_is_leader(target->group) || !group_is', 'if (!group_is'),
    ('of->role != RAFT_MERGE_SOURCE || of->other', 'of->other'),
    ('of->role != RAFT_MERGE_SOURCE || of->other != target->region', 'of->role != RAFT_MERGE_SOURCE'),
    ('of->version != t.at.epoch.version || ', ''),
    ('of->version != t.at.epoch.version || !raft_slots_adjoin(t.at.slots, s.at.slots)', 'of->version != t.at.epoch.version'),
    ('!rules_same_nodes(&t.at.conf, &s.at.conf) || !group_all_have', '!group_all_have'),
    (' || !group_all_have(source->group, of->index)', ''),
    ('if (t.at.merge.role != RAFT_MERGE_TARGET || t.epoch_pending) return;', 'if (t.epoch_pending) return;'),
    ('if (t.at.merge.role != RAFT_MERGE_TARGET || t.epoch_pending) return;', 'if (t.at.merge.role != RAFT_MERGE_TARGET) return;'),
    ('if (waited_ticks > MERGE_PATIENCE_TICKS)', 'if (false)'),
    ('waited_ticks > MERGE_PATIENCE_TICKS / 2 || !source->group', '!source->group'),
    ('waited_ticks > MERGE_PATIENCE_TICKS / 2 || !source->group', 'waited_ticks > MERGE_PATIENCE_TICKS / 2'),
    ('if (s.at.merge.role || s.epoch_pending) return;', 'if (s.epoch_pending) return;'),
    ('if (s.at.merge.role || s.epoch_pending) return;', 'if (s.at.merge.role) return;'),
    ('c->voters_n == 1 && c->voters[0]', 'c->voters[0]'),
    ('c->voters[0] == s->core.id && ', ''),
    (' && s->core.applied_own_term &&\n', ' &&\n'),
    (' &&\n           s->at.index == s->core.commit', ''),
    ('if (!merge_is_alone(&s)) return false;', ''),
    ('if (!target->group) return !target_here;', 'if (!target->group) return true;'),
    ('if (!target->group) return !target_here;', 'if (!target->group) return false;'),
    ('group_is_leader(target->group) && merge_is_alone(&t)', 'merge_is_alone(&t)'),
    ('&& merge_is_alone(&t) &&', '&&'),
    (' && t.at.epoch.version < s.at.merge.version', ''),
    ('    if (s.epoch_pending) return;\n    if (refused)', '    if (refused)'),
    ('if (refused) {', 'if (false) {'),
    ('if (refused) {', 'if (true) {'),
    ('if (to) group_transfer', 'if (false) group_transfer'),
]
# … and the test that is to find it.
FILES = {'region_rules': (REGION_RULES, 'test_region_rules'),
         'schedule': (SCHEDULE, 'test_schedule'),
         'merge_rules': (MERGE_RULES, 'test_group_merge')}


class Bench:
    def __init__(self, args, folder):
        self.compiler, self.libraries, self.folder = shlex.split(args.compile), shlex.split(args.link), folder
        self.objects = {}

    def compiled(self, source, *flags):
        made = os.path.join(self.folder, os.path.basename(source) + '.o')
        subprocess.run([*self.compiler, *flags, '-c', '-o', made, source], check=True, cwd=ROOT)
        return made

    def passes(self, test, rule):
        program = os.path.join(self.folder, 'program')
        if test not in self.objects:
            self.objects[test] = self.compiled(f'tests/raft/{test}.c')
        subprocess.run([*self.compiler, '-o', program, self.objects[test], rule, *self.libraries], check=True, cwd=ROOT)
        try:
            return subprocess.run([program], capture_output=True, timeout=SECONDS, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--compile', required=True)
    p.add_argument('--link', required=True)
    p.add_argument('--only', default='')
    args = p.parse_args()
    missed, tried, began = [], 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        for name, (rules, test) in FILES.items():
            with open(os.path.join(ROOT, 'src', 'cluster', f'{name}.c'), encoding='utf-8') as f:
                text = f.read()
            for says, instead in rules:
                if args.only not in f'{name} {says} {instead}':
                    continue
                if text.count(says) != 1:
                    sys.exit(f'{name}.c has this {text.count(says)} times, not once: {says}')
                broken = os.path.join(folder, f'{name}.c')
                with open(broken, 'w', encoding='utf-8') as f:
                    f.write(text.replace(says, instead))
                rule = bench.compiled(broken, '-w')
                tried += 1
                if bench.passes(test, rule):
                    missed.append((name, says, instead))
                    print(f'  {name}: NOT FOUND: {says!r} → {instead!r}', flush=True)
    print(f'{tried} broken rules, {len(missed)} not found, in {time.monotonic() - began:.0f} s')
    sys.exit(1 if missed else 0)


if __name__ == '__main__':
    main()
