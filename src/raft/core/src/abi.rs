//! The structs of raft_core.h, field by field.

use raft::eraftpb::{ConfState, Entry};
use std::os::raw::{c_char, c_int, c_void};

pub const MEMBERS_MAX: usize = 16;

pub const OK: c_int = 0;
pub const NOT_LEADER: c_int = -1;
pub const DROPPED: c_int = -2;
pub const PENDING: c_int = -3;
pub const INVALID: c_int = -4;
pub const BAD_BYTES: c_int = -5;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CBytes {
    pub data: *const u8,
    pub size: usize,
}

impl CBytes {
    pub fn of(b: &[u8]) -> Self {
        CBytes { data: b.as_ptr(), size: b.len() }
    }
}

#[repr(C)]
pub struct CEntry {
    pub index: u64,
    pub term: u64,
    pub kind: u32,
    pub data: CBytes,
}

impl CEntry {
    pub fn of(e: &Entry) -> Self {
        CEntry { index: e.index, term: e.term, kind: e.get_entry_type() as u32, data: CBytes::of(&e.data) }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CHardState {
    pub term: u64,
    pub vote: u64,
    pub commit: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CConf {
    pub voters: [u64; MEMBERS_MAX],
    pub learners: [u64; MEMBERS_MAX],
    pub outgoing: [u64; MEMBERS_MAX],
    pub learners_next: [u64; MEMBERS_MAX],
    pub voters_n: u32,
    pub learners_n: u32,
    pub outgoing_n: u32,
    pub learners_next_n: u32,
    pub auto_leave: bool,
}

fn put(from: &[u64], to: &mut [u64; MEMBERS_MAX]) -> u32 {
    assert!(from.len() <= MEMBERS_MAX, "a configuration of {} members", from.len());
    let mut sorted = from.to_vec();
    sorted.sort_unstable();
    to[..sorted.len()].copy_from_slice(&sorted);
    sorted.len() as u32
}

impl CConf {
    pub fn of(cs: &ConfState) -> Self {
        let mut c = CConf::default();
        c.voters_n = put(&cs.voters, &mut c.voters);
        c.learners_n = put(&cs.learners, &mut c.learners);
        c.outgoing_n = put(&cs.voters_outgoing, &mut c.outgoing);
        c.learners_next_n = put(&cs.learners_next, &mut c.learners_next);
        c.auto_leave = cs.auto_leave;
        c
    }

    pub fn state(&self) -> ConfState {
        let mut cs = ConfState::default();
        cs.voters = self.voters[..self.voters_n as usize].to_vec();
        cs.learners = self.learners[..self.learners_n as usize].to_vec();
        cs.voters_outgoing = self.outgoing[..self.outgoing_n as usize].to_vec();
        cs.learners_next = self.learners_next[..self.learners_next_n as usize].to_vec();
        cs.auto_leave = self.auto_leave;
        cs
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CConfig {
    pub id: u64,
    pub seed: u64,
    pub election_ticks: u32,
    pub heartbeat_ticks: u32,
    pub message_bytes_max: u64,
    pub uncommitted_bytes_max: u64,
    pub cache_bytes_max: u64,
    pub inflight_messages_max: u32,
    pub hard_state: CHardState,
    pub conf: CConf,
    pub applied: u64,
    pub snapshot_index: u64,
    pub snapshot_term: u64,
    pub last_index: u64,
    pub log: *mut c_void,
    pub read: extern "C" fn(*mut c_void, u64, u64, u64, *mut Vec<Entry>) -> bool,
    pub term: extern "C" fn(*mut c_void, u64) -> u64,
    pub print: Option<extern "C" fn(*mut c_void, c_int, *const c_char, usize)>,
}

#[repr(C)]
pub struct CMessage {
    pub to: u64,
    pub snapshot: bool,
    pub snapshot_index: u64,
    pub snapshot_term: u64,
    pub data: CBytes,
}

#[repr(C)]
pub struct CReadState {
    pub index: u64,
    pub context: CBytes,
}

#[repr(C)]
pub struct CReady {
    pub number: u64,
    pub must_sync: bool,
    pub has_hard_state: bool,
    pub has_snapshot: bool,
    pub hard_state: CHardState,
    pub snapshot_index: u64,
    pub snapshot_term: u64,
    pub snapshot_conf: CConf,
    pub entries: *const CEntry,
    pub committed: *const CEntry,
    pub now: *const CMessage,
    pub after: *const CMessage,
    pub reads: *const CReadState,
    pub entries_n: usize,
    pub committed_n: usize,
    pub now_n: usize,
    pub after_n: usize,
    pub reads_n: usize,
}

#[repr(C)]
pub struct CChange {
    pub id: u64,
    pub kind: u32,
}

#[repr(C)]
pub struct CStatus {
    pub id: u64,
    pub term: u64,
    pub vote: u64,
    pub leader: u64,
    pub transferee: u64,
    pub commit: u64,
    pub applied: u64,
    pub persisted: u64,
    pub first_index: u64,
    pub last_index: u64,
    pub role: u32,
    pub applied_own_term: bool,
    pub conf_pending: bool,
    pub promotable: bool,
}

#[repr(C)]
pub struct CProgress {
    pub matched: u64,
    pub next: u64,
    pub pending_snapshot: u64,
    pub state: u32,
    pub active: bool,
}
