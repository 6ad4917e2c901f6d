//! raft-rs behind the C interface of ../raft_core.h, which is the manual.

mod abi;
mod print;
mod store;

use abi::*;
use protobuf::Message as _;
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, Entry, EntryType};
use raft::eraftpb::{Message, MessageType};
use raft::{Changer, Config, ProgressState, RawNode, Ready, SnapshotStatus, StateRole, Storage};
use std::os::raw::c_int;
use std::slice;
use store::Store;

pub struct Core {
    node: RawNode<Store>,
    seed: u64,
    attempts: u64,
    ready: Option<Ready>,
    lent: Lent,
}

/// What the pointers of a raft_ready lead to, until the next one.
#[derive(Default)]
struct Lent {
    entries: Vec<Entry>,
    committed: Vec<Entry>,
    bytes: Vec<Vec<u8>>,
    c_entries: Vec<CEntry>,
    c_committed: Vec<CEntry>,
    c_messages: Vec<CMessage>,
    c_reads: Vec<CReadState>,
}

unsafe fn bytes<'a>(data: *const u8, size: usize) -> &'a [u8] {
    if size == 0 {
        &[]
    } else {
        slice::from_raw_parts(data, size)
    }
}

/// The finisher of SplitMix64.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Core {
    /// The library draws election timeouts at random; replaces what it drew. Call after everything that may start a
    /// term or an election.
    fn settle(&mut self) {
        let raft = &mut self.node.raft;
        let base = raft.election_timeout();
        let mut h = mix(self.seed ^ mix(raft.id));
        h = mix(h ^ raft.term);
        h = mix(h ^ self.attempts);
        raft.set_randomized_election_timeout(base + (h % base as u64) as usize);
    }

    fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }
}

/// Whether a peer may send this at all: the library takes much on trust.
fn acceptable(m: &Message, own: u64, snapshot: bool) -> bool {
    use MessageType::*;
    let types = [
        MsgAppend, MsgAppendResponse, MsgRequestVote, MsgRequestVoteResponse, MsgHeartbeat, MsgHeartbeatResponse,
        MsgTimeoutNow, MsgTransferLeader, MsgRequestPreVote, MsgRequestPreVoteResponse,
    ];
    let small = |x: u64| x < 1 << 62;
    let expected = if snapshot { m.get_msg_type() == MsgSnapshot } else { types.contains(&m.get_msg_type()) };
    if !expected || m.to != own || m.from == 0 || m.from == own || m.term == 0 || !small(m.index) || !small(m.commit) {
        return false;
    }
    if snapshot {
        let meta = m.get_snapshot().get_metadata();
        return meta.index != 0 && meta.term != 0 && meta.term <= m.term && small(meta.index);
    }
    let mut term = m.log_term;
    m.entries.iter().enumerate().all(|(i, e)| {
        let rising = e.term >= term && e.term <= m.term;
        term = e.term;
        rising && e.index == m.index + 1 + i as u64
    })
}

/// # Safety
/// As raft_core.h says; the same holds for every function below.
#[no_mangle]
pub unsafe extern "C" fn raft_core_open(config: *const CConfig) -> *mut Core {
    let c = &*config;
    let cfg = Config {
        id: c.id,
        election_tick: c.election_ticks as usize,
        heartbeat_tick: c.heartbeat_ticks as usize,
        applied: c.applied,
        max_size_per_msg: c.message_bytes_max.max(1),
        max_inflight_msgs: c.inflight_messages_max as usize,
        check_quorum: true,
        pre_vote: true,
        batch_append: true,
        skip_bcast_commit: true, // raft_core_tell
        max_uncommitted_size: c.uncommitted_bytes_max.max(c.message_bytes_max),
        max_committed_size_per_ready: 16 << 20,
        ..Config::default()
    };
    let node = RawNode::new(&cfg, Store::new(c), &print::logger(c)).expect("a valid configuration of the core");
    let mut core = Core { node, seed: c.seed, attempts: 0, ready: None, lent: Lent::default() };
    core.settle();
    Box::into_raw(Box::new(core))
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_close(c: *mut Core) {
    drop(Box::from_raw(c));
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_tick(c: *mut Core) {
    let c = &mut *c;
    c.node.tick();
    if !c.is_leader() && c.node.raft.election_elapsed == 0 {
        c.attempts += 1; // the timeout passed: the next one differs
    }
    c.settle();
}

fn step(c: &mut Core, data: &[u8], snapshot: bool) -> c_int {
    let Ok(m) = Message::parse_from_bytes(data) else { return BAD_BYTES };
    if !acceptable(&m, c.node.raft.id, snapshot) {
        return BAD_BYTES;
    }
    let result = c.node.step(m);
    c.settle();
    if result.is_ok() { OK } else { DROPPED }
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_step(c: *mut Core, data: *const u8, size: usize) -> c_int {
    step(&mut *c, bytes(data, size), false)
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_step_snapshot(c: *mut Core, data: *const u8, size: usize) -> c_int {
    step(&mut *c, bytes(data, size), true)
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_propose(c: *mut Core, data: *const u8, size: usize) -> c_int {
    let c = &mut *c;
    if !c.is_leader() {
        return NOT_LEADER;
    }
    match c.node.propose(vec![], bytes(data, size).to_vec()) {
        Ok(()) => OK,
        Err(_) => DROPPED,
    }
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_propose_conf(c: *mut Core, changes: *const CChange, n: usize) -> c_int {
    let c = &mut *c;
    if !c.is_leader() {
        return NOT_LEADER;
    }
    let mut cc = ConfChangeV2::default();
    cc.set_transition(ConfChangeTransition::Implicit);
    let mut list = Vec::new();
    for change in slice::from_raw_parts(changes, n) {
        let mut single = ConfChangeSingle::default();
        single.node_id = change.id;
        single.set_change_type(match change.kind {
            0 => ConfChangeType::AddNode,
            1 => ConfChangeType::RemoveNode,
            2 => ConfChangeType::AddLearnerNode,
            _ => return INVALID,
        });
        list.push(single);
    }
    cc.set_changes(list.into());
    let raft = &c.node.raft;
    if raft.has_pending_conf() || !raft.prs().conf().to_conf_state().voters_outgoing.is_empty() {
        return PENDING; // the library would turn it into an empty entry without a word
    }
    match Changer::new(raft.prs()).enter_joint(true, cc.get_changes()) {
        Err(_) => return INVALID,
        Ok((conf, _)) => {
            let cs = conf.to_conf_state();
            if cs.voters.is_empty() || cs.voters.len() + cs.learners.len() > MEMBERS_MAX {
                return INVALID;
            }
        }
    }
    match c.node.propose_conf_change(vec![], cc) {
        Ok(()) => OK,
        Err(_) => DROPPED,
    }
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_apply_conf(c: *mut Core, data: *const u8, size: usize, conf: *mut CConf) -> c_int {
    let c = &mut *c;
    let mut result = INVALID;
    if let Ok(cc) = ConfChangeV2::parse_from_bytes(bytes(data, size)) {
        if let Ok(cs) = c.node.apply_conf_change(&cc) {
            c.node.mut_store().conf = cs;
            result = OK;
        }
    }
    let raft = &mut c.node.raft;
    let id = raft.id;
    let voter = raft.prs().conf().to_conf_state();
    let voter = voter.voters.contains(&id) || voter.voters_outgoing.contains(&id);
    if raft.state == StateRole::Leader && !voter {
        let term = raft.term;
        raft.become_follower(term, 0);
    }
    c.settle();
    *conf = CConf::of(&c.node.store().conf);
    result
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_read_index(c: *mut Core, context: *const u8, size: usize) {
    let c = &mut *c;
    if c.is_leader() {
        c.node.read_index(bytes(context, size).to_vec());
    }
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_transfer(c: *mut Core, to: u64) {
    let c = &mut *c;
    c.node.transfer_leader(to); // a follower sends it on to the leader; without one nothing happens
    c.settle();
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_campaign(c: *mut Core) {
    let c = &mut *c;
    if c.node.raft.promotable() {
        let _ = c.node.campaign();
        c.settle();
    }
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_tell(c: *mut Core) {
    let c = &mut *c;
    if c.is_leader() {
        c.node.raft.bcast_append();
    }
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_unreachable(c: *mut Core, id: u64) {
    (*c).node.report_unreachable(id);
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_snapshot_sent(c: *mut Core, id: u64, ok: bool) {
    (*c).node.report_snapshot(id, if ok { SnapshotStatus::Finish } else { SnapshotStatus::Failure });
}

/// A snapshot was announced when the message was made; what is sent is the state machine as it is now.
fn lend_messages(messages: &mut [Message], store: &Store, lent: &mut Lent) {
    for m in messages {
        if m.get_msg_type() == MessageType::MsgSnapshot {
            m.set_snapshot(store.snapshot(0, m.to).expect("a snapshot of what is applied"));
        }
        let meta = m.get_snapshot().get_metadata();
        lent.bytes.push(m.write_to_bytes().expect("a message can be encoded"));
        lent.c_messages.push(CMessage {
            to: m.to,
            snapshot: m.get_msg_type() == MessageType::MsgSnapshot,
            snapshot_index: meta.index,
            snapshot_term: meta.term,
            data: CBytes::of(lent.bytes.last().unwrap()),
        });
    }
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_ready(c: *mut Core, out: *mut CReady) -> bool {
    let c = &mut *c;
    assert!(c.ready.is_none(), "ready without advance");
    if !c.node.has_ready() {
        return false;
    }
    let mut rd = c.node.ready();
    c.lent = Lent::default();
    let (lent, store) = (&mut c.lent, c.node.raft.raft_log.store());
    lent.entries = rd.take_entries();
    lent.committed = rd.take_committed_entries();
    lent.c_entries = lent.entries.iter().map(CEntry::of).collect();
    lent.c_committed = lent.committed.iter().map(CEntry::of).collect();
    let mut now = rd.take_messages();
    let mut after = rd.take_persisted_messages();
    lend_messages(&mut now, store, lent);
    lend_messages(&mut after, store, lent);
    for read in rd.take_read_states() {
        lent.bytes.push(read.request_ctx);
        lent.c_reads.push(CReadState { index: read.index, context: CBytes::of(lent.bytes.last().unwrap()) });
    }
    let hs = rd.hs().cloned();
    let snapshot = rd.snapshot().clone();
    let meta = snapshot.get_metadata();
    *out = CReady {
        number: rd.number(),
        must_sync: rd.must_sync(),
        has_hard_state: hs.is_some(),
        has_snapshot: !snapshot.is_empty(),
        hard_state: hs.map_or(CHardState::default(), |h| CHardState { term: h.term, vote: h.vote, commit: h.commit }),
        snapshot_index: meta.index,
        snapshot_term: meta.term,
        snapshot_conf: CConf::of(meta.get_conf_state()),
        entries: lent.c_entries.as_ptr(),
        committed: lent.c_committed.as_ptr(),
        now: lent.c_messages.as_ptr(),
        after: lent.c_messages.as_ptr().add(now.len()),
        reads: lent.c_reads.as_ptr(),
        entries_n: lent.c_entries.len(),
        committed_n: lent.c_committed.len(),
        now_n: now.len(),
        after_n: after.len(),
        reads_n: lent.c_reads.len(),
    };
    c.ready = Some(rd);
    true
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_advance(c: *mut Core) {
    let c = &mut *c;
    let rd = c.ready.take().expect("advance without ready");
    if !rd.snapshot().is_empty() {
        let snapshot = rd.snapshot().clone();
        c.node.mut_store().reset(&snapshot);
    }
    c.node.mut_store().append(&c.lent.entries);
    c.node.advance_append_async(rd);
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_persisted(c: *mut Core, number: u64) {
    (*c).node.on_persist_ready(number);
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_applied(c: *mut Core, index: u64) {
    let c = &mut *c;
    c.node.mut_store().applied = index;
    c.node.advance_apply_to(index);
    let durable = c.node.raft.raft_log.persisted;
    c.node.mut_store().trim(durable);
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_commit_to(c: *mut Core, index: u64, term: u64) -> bool {
    let c = &mut *c;
    let known = c.node.raft.raft_log.match_term(index, term);
    if known {
        c.node.raft.raft_log.commit_to(index);
    }
    known
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_compacted(c: *mut Core, index: u64) -> u64 {
    (*c).node.mut_store().compacted(index)
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_rest(c: *mut Core) {
    let c = &mut *c;
    let raft = &mut c.node.raft;
    c.lent = Lent::default();
    raft.maybe_free_inflight_buffers();
    if raft.raft_log.unstable.entries.is_empty() {
        raft.raft_log.unstable.entries = Vec::new();
    }
    let durable = raft.raft_log.persisted;
    c.node.mut_store().empty(durable);
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_silence(c: *mut Core, ticks: u32) {
    let c = &mut *c;
    if !c.is_leader() {
        c.node.raft.election_elapsed = ticks as usize;
    }
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_active(c: *mut Core, id: u64, active: bool) {
    if let Some(p) = (*c).node.raft.mut_prs().get_mut(id) {
        p.recent_active = active;
    }
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_status(c: *const Core, out: *mut CStatus) {
    let raft = &(*c).node.raft;
    *out = CStatus {
        id: raft.id,
        term: raft.term,
        vote: raft.vote,
        leader: raft.leader_id,
        transferee: raft.lead_transferee.unwrap_or(0),
        commit: raft.raft_log.committed,
        applied: raft.raft_log.applied,
        persisted: raft.raft_log.persisted,
        first_index: raft.raft_log.store.first_index().unwrap_or(0),
        last_index: raft.raft_log.last_index(),
        role: match raft.state {
            StateRole::Follower => 0,
            StateRole::Candidate => 1,
            StateRole::Leader => 2,
            StateRole::PreCandidate => 3,
        },
        applied_own_term: raft.apply_to_current_term(),
        conf_pending: raft.has_pending_conf(),
        promotable: raft.promotable(),
    };
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_progress(c: *const Core, id: u64, out: *mut CProgress) -> bool {
    let Some(p) = (*c).node.raft.prs().get(id) else { return false };
    *out = CProgress {
        matched: p.matched,
        next: p.next_idx,
        pending_snapshot: p.pending_snapshot,
        state: match p.state {
            ProgressState::Probe => 0,
            ProgressState::Replicate => 1,
            ProgressState::Snapshot => 2,
        },
        active: p.recent_active,
    };
    true
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_push(sink: *mut Vec<Entry>, entry: *const CEntry) {
    let from = &*entry;
    let mut e = Entry::default();
    e.index = from.index;
    e.term = from.term;
    e.set_entry_type(match from.kind {
        1 => EntryType::EntryConfChange,
        2 => EntryType::EntryConfChangeV2,
        _ => EntryType::EntryNormal,
    });
    e.data = bytes::Bytes::copy_from_slice(bytes(from.data.data, from.data.size));
    (*sink).push(e);
}

#[no_mangle]
pub unsafe extern "C" fn raft_core_message_type(data: *const u8, size: usize, term: *mut u64) -> c_int {
    let Ok(m) = Message::parse_from_bytes(bytes(data, size)) else { return -1 };
    *term = m.term;
    m.get_msg_type() as c_int
}
