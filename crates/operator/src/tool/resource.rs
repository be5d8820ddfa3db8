//! One resource's load: slots, a token bucket, and how it asked to be left alone.
//!
//! Integer arithmetic over microseconds that are handed in. A slot is held until its call has really
//! returned, also where nobody waits for the call any more.

use super::Quota;

/// What one call takes from the bucket: a rate per kilosecond times microseconds is a count of these.
const CALL: u64 = 1_000_000_000;

/// The state of one resource.
#[derive(Debug)]
pub(super) struct Resource {
    /// Most calls at once that the tools allow.
    slots: u32,
    /// Most at once while it recovers from having been asked for less.
    allowed: u32,
    /// Calls that have not returned.
    busy: u32,
    /// Of these, calls that were given up.
    stuck: u32,
    per_kilosecond: Option<u64>,
    burst: u32,
    level: u64,
    filled_us: u64,
    closed_until_us: u64,
    /// When `allowed` was last lowered; calls from before then say nothing new.
    lowered_us: u64,
    good: u32,
}

impl Resource {
    pub(super) fn new(quota: &Quota, now_us: u64) -> Self {
        Self {
            slots: quota.concurrency,
            allowed: quota.concurrency,
            busy: 0,
            stuck: 0,
            per_kilosecond: quota.per_kilosecond,
            burst: quota.burst,
            level: u64::from(quota.burst) * CALL,
            filled_us: now_us,
            closed_until_us: 0,
            lowered_us: 0,
            good: 0,
        }
    }

    /// Takes another tool's limits into account: the stricter hold.
    pub(super) fn tighten(&mut self, quota: &Quota) {
        self.slots = self.slots.min(quota.concurrency);
        self.allowed = self.allowed.min(self.slots);
        if let Some(rate) = quota.per_kilosecond {
            self.burst = match self.per_kilosecond {
                Some(_) => self.burst.min(quota.burst),
                None => quota.burst,
            };
            self.per_kilosecond = Some(self.per_kilosecond.map_or(rate, |own| own.min(rate)));
            self.level = self.level.min(u64::from(self.burst) * CALL);
        }
    }

    /// When it can take a call at the earliest; none while every slot is taken.
    pub(super) fn opens_us(&mut self, now_us: u64) -> Option<u64> {
        if self.busy >= self.slots || self.busy >= self.allowed.max(self.stuck + 1) {
            return None;
        }
        self.fill(now_us);
        let refilled = match self.per_kilosecond {
            Some(rate) if self.level < CALL => {
                now_us.saturating_add((CALL - self.level).div_ceil(rate))
            }
            _ => now_us,
        };
        Some(refilled.max(self.closed_until_us))
    }

    /// Whether no call can ever start: every slot is held by one that was given up.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck >= self.slots
    }

    /// When it may be called again, as far as it said so.
    pub(super) fn closed_until_us(&self) -> u64 {
        self.closed_until_us
    }

    pub(super) fn start(&mut self, now_us: u64) {
        self.fill(now_us);
        self.busy += 1;
        if self.per_kilosecond.is_some() {
            self.level -= CALL;
        }
    }

    /// A call is given up; its slot stays taken.
    pub(super) fn give_up(&mut self) {
        self.stuck += 1;
    }

    /// A call that was given up has returned after all.
    pub(super) fn unstick(&mut self) {
        self.stuck -= 1;
    }

    /// A call has returned.
    pub(super) fn free(&mut self) {
        self.busy -= 1;
    }

    /// A call went well: after as many as are allowed, one more is.
    pub(super) fn succeed(&mut self) {
        self.good += 1;
        if self.good >= self.allowed {
            self.good = 0;
            self.allowed = self.slots.min(self.allowed + 1);
        }
    }

    /// A call that started then was told that there are too many.
    pub(super) fn limit(&mut self, started_us: u64, now_us: u64) {
        self.good = 0;
        if started_us >= self.lowered_us {
            self.allowed = (self.allowed / 2).max(1);
            self.lowered_us = now_us;
        }
    }

    /// It asked to be left alone until then.
    pub(super) fn close(&mut self, until_us: u64) {
        self.closed_until_us = self.closed_until_us.max(until_us);
    }

    fn fill(&mut self, now_us: u64) {
        let Some(rate) = self.per_kilosecond else {
            return;
        };
        let gained = now_us.saturating_sub(self.filled_us).saturating_mul(rate);
        let most = u64::from(self.burst) * CALL;
        self.level = self.level.saturating_add(gained).min(most);
        self.filled_us = self.filled_us.max(now_us);
    }
}
