//! The library's log lines, handed to the callback `print`.

use crate::abi::CConfig;
use slog::{Drain, Key, Level, Logger, Never, OwnedKVList, Record, Serializer, KV};
use std::fmt::{Arguments, Write};
use std::os::raw::{c_char, c_int, c_void};

struct Printer {
    to: *mut c_void,
    print: extern "C" fn(*mut c_void, c_int, *const c_char, usize),
}

// A core and its callbacks belong to one thread.
unsafe impl Send for Printer {}
unsafe impl Sync for Printer {}
impl std::panic::UnwindSafe for Printer {}
impl std::panic::RefUnwindSafe for Printer {}

struct Pairs(String);

impl Serializer for Pairs {
    fn emit_arguments(&mut self, key: Key, value: &Arguments) -> slog::Result {
        let _ = write!(self.0, " {}={}", key, value);
        Ok(())
    }
}

impl Drain for Printer {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record, _: &OwnedKVList) -> Result<(), Never> {
        let level = match record.level() {
            Level::Critical | Level::Error => 0,
            Level::Warning => 1,
            Level::Info => 2,
            _ => 3,
        };
        let mut text = Pairs(record.msg().to_string());
        let _ = record.kv().serialize(record, &mut text);
        (self.print)(self.to, level, text.0.as_ptr() as *const c_char, text.0.len());
        Ok(())
    }
}

pub fn logger(config: &CConfig) -> Logger {
    match config.print {
        None => Logger::root(slog::Discard, slog::o!()),
        Some(print) => Logger::root(Printer { to: config.log, print }, slog::o!()),
    }
}
