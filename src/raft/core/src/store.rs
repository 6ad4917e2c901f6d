//! What raft-rs reads of the log: recent entries from memory, older ones through the callbacks.

use crate::abi::CConfig;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};
use std::collections::VecDeque;

pub struct Store {
    config: CConfig,
    hard_state: HardState,
    pub conf: ConfState, // as of `applied`
    pub applied: u64,
    snapshot_index: u64, // the entry before the first, and its term
    snapshot_term: u64,
    last: u64,
    cache: VecDeque<Entry>, // the log's end, without gaps; entries that are not durable are always in it
    cache_bytes: u64,
    known: (u64, u64), // an applied entry, and its term, that is asked for when the cache is empty
}

fn size_of(e: &Entry) -> u64 {
    e.data.len() as u64 + 64
}

impl Store {
    pub fn new(config: &CConfig) -> Self {
        let mut hs = HardState::default();
        hs.term = config.hard_state.term;
        hs.vote = config.hard_state.vote;
        hs.commit = config.hard_state.commit;
        Store {
            config: *config,
            hard_state: hs,
            conf: config.conf.state(),
            applied: config.applied,
            snapshot_index: config.snapshot_index,
            snapshot_term: config.snapshot_term,
            last: config.last_index,
            cache: VecDeque::new(),
            cache_bytes: 0,
            known: (0, 0),
        }
    }

    fn cache_first(&self) -> u64 {
        self.cache.front().map_or(self.last + 1, |e| e.index)
    }

    /// Takes over entries that are about to be written; they replace what has their indexes.
    pub fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first().map(|e| e.index) else { return };
        assert!(first > self.snapshot_index && first <= self.last + 1, "append at {} to a log up to {}", first, self.last);
        while self.cache.back().map_or(false, |e| e.index >= first) {
            self.cache_bytes -= size_of(&self.cache.pop_back().unwrap());
        }
        self.cache_bytes += entries.iter().map(size_of).sum::<u64>();
        self.cache.extend(entries.iter().cloned());
        self.last = entries.last().unwrap().index;
    }

    /// Drops the oldest cached entries that are applied and durable while the cache is too big.
    pub fn trim(&mut self, durable: u64) {
        let keep_from = self.applied.min(durable);
        while self.cache_bytes > self.config.cache_bytes_max && self.cache_first() <= keep_from && !self.cache.is_empty() {
            self.cache_bytes -= size_of(&self.cache.pop_front().unwrap());
        }
    }

    /// Drops all cached entries, if all are applied and durable.
    pub fn empty(&mut self, durable: u64) {
        if self.last <= self.applied.min(durable) {
            self.known = self.term(self.last).map_or((0, 0), |term| (self.last, term));
            self.cache = VecDeque::new();
            self.cache_bytes = 0;
        }
    }

    pub fn compacted(&mut self, index: u64) -> u64 {
        if index <= self.snapshot_index {
            return self.snapshot_term;
        }
        assert!(index <= self.applied, "compaction up to {} but applied {}", index, self.applied);
        self.snapshot_term = self.term(index).expect("the term of an entry that is being compacted");
        self.snapshot_index = index;
        while self.cache.front().map_or(false, |e| e.index <= index) {
            self.cache_bytes -= size_of(&self.cache.pop_front().unwrap());
        }
        self.snapshot_term
    }

    /// A snapshot replaces the whole log.
    pub fn reset(&mut self, snapshot: &Snapshot) {
        let meta = snapshot.get_metadata();
        self.snapshot_index = meta.index;
        self.snapshot_term = meta.term;
        self.last = meta.index;
        self.applied = meta.index;
        self.conf = meta.get_conf_state().clone();
        self.cache.clear();
        self.cache_bytes = 0;
    }
}

impl Storage for Store {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.conf.clone()))
    }

    fn entries(&self, low: u64, high: u64, max_size: impl Into<Option<u64>>, _: GetEntriesContext) -> Result<Vec<Entry>> {
        if low <= self.snapshot_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        assert!(high <= self.last + 1, "entries up to {} of a log up to {}", high, self.last);
        let max = max_size.into();
        let mut found: Vec<Entry> = Vec::new();
        let cached = self.cache_first();
        if low < cached {
            let ok = (self.config.read)(self.config.log, low, high.min(cached), max.unwrap_or(u64::MAX), &mut found);
            assert!(ok && !found.is_empty(), "the log can't read entry {}", low);
        }
        let next = low + found.len() as u64;
        if next >= cached && next < high {
            let from = (next - cached) as usize;
            found.extend(self.cache.iter().skip(from).take((high - next) as usize).cloned());
        }
        for (i, e) in found.iter().enumerate() {
            assert_eq!(e.index, low + i as u64, "the log has a gap");
        }
        raft::util::limit_size(&mut found, max);
        Ok(found)
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index == self.snapshot_index {
            return Ok(self.snapshot_term);
        }
        if index < self.snapshot_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        if index > self.last {
            return Err(Error::Store(StorageError::Unavailable));
        }
        if index >= self.cache_first() {
            return Ok(self.cache[(index - self.cache_first()) as usize].term);
        }
        if index == self.known.0 {
            return Ok(self.known.1);
        }
        let term = (self.config.term)(self.config.log, index);
        assert!(term != 0, "the log has no term for {}", index);
        Ok(term)
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.snapshot_index + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last)
    }

    /// Only announces it: the state machine as of `applied`. Its data travels apart from raft's messages.
    fn snapshot(&self, request_index: u64, _to: u64) -> Result<Snapshot> {
        if self.applied < request_index || self.applied < self.snapshot_index {
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        let mut s = Snapshot::default();
        let meta = s.mut_metadata();
        meta.index = self.applied;
        meta.term = self.term(self.applied)?;
        meta.set_conf_state(self.conf.clone());
        Ok(s)
    }
}
