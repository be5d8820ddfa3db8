//! Which call starts when: quotas, retries and budgets as one state machine without threads or clock.
//!
//! Time is handed in with every step, so that a day of retries can be tested in no time. Every task
//! ends exactly once: as read (the caller's), failed, cancelled or not run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::resource::Resource;
use super::{Quota, ToolBudget, ToolError};
use crate::canonical::Canonical;
use crate::id::ContentHash;

/// How long after its time a call may still return by itself before it is given up.
pub(super) const GRACE_US: u64 = 250_000;

/// All that wants to call, and what is under way.
#[derive(Debug)]
pub(super) struct Schedule {
    budget: ToolBudget,
    seed: u64,
    tools: Vec<ToolLoad>,
    resources: Vec<Resource>,
    /// Tasks that wait, per resource, by when they may start at the earliest.
    waiting: Vec<BTreeSet<(u64, usize)>>,
    tasks: Vec<Task>,
    running: BTreeMap<u64, Running>,
    /// Calls that have not returned and that nobody waits for, with their resource.
    given_up: BTreeMap<u64, usize>,
    gave_up_us: u64,
    ended: VecDeque<(usize, End)>,
    calls: u64,
    money_micros: u64,
}

#[derive(Debug)]
struct ToolLoad {
    name: String,
    quota: Quota,
    calls: u64,
}

#[derive(Debug)]
struct Task {
    tool: usize,
    resource: usize,
    key: ContentHash,
    attempts: u32,
    last: Option<ToolError>,
}

#[derive(Debug)]
struct Running {
    task: usize,
    started_us: u64,
    deadline_us: u64,
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Start a call for a task.
    Start { call: u64, task: usize },
    /// Stop waiting for a call that did not return in time.
    GiveUp { call: u64 },
    /// A task has ended without having read anything.
    End { task: usize, end: End },
    /// Nothing before this time, unless a call returns.
    Wait { until_us: u64 },
    /// Every task has ended or has been read.
    Done,
}

/// How a task ended that read nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Failed { error: ToolError, attempts: u32 },
    Cancelled,
    NotRun(String),
}

impl Schedule {
    pub(super) fn new(budget: ToolBudget, seed: u64) -> Self {
        Self {
            budget,
            seed,
            tools: Vec::new(),
            resources: Vec::new(),
            waiting: Vec::new(),
            tasks: Vec::new(),
            running: BTreeMap::new(),
            given_up: BTreeMap::new(),
            gave_up_us: 0,
            ended: VecDeque::new(),
            calls: 0,
            money_micros: 0,
        }
    }

    pub(super) fn add_tool(&mut self, name: &str, quota: Quota) -> usize {
        self.tools.push(ToolLoad {
            name: name.to_owned(),
            quota,
            calls: 0,
        });
        self.tools.len() - 1
    }

    pub(super) fn add_resource(&mut self, tool: usize, now_us: u64) -> usize {
        let resource = Resource::new(&self.tools[tool].quota, now_us);
        self.resources.push(resource);
        self.waiting.push(BTreeSet::new());
        self.resources.len() - 1
    }

    /// Puts a tool's load on a resource that others use too.
    pub(super) fn share(&mut self, tool: usize, resource: usize) {
        self.resources[resource].tighten(&self.tools[tool].quota);
    }

    pub(super) fn add_task(&mut self, tool: usize, resource: usize, key: ContentHash) -> usize {
        let task = self.tasks.len();
        self.tasks.push(Task {
            tool,
            resource,
            key,
            attempts: 0,
            last: None,
        });
        self.waiting[resource].insert((0, task));
        task
    }

    /// Forgets the tasks of a finished batch; what was used stays used.
    pub(super) fn clear(&mut self) {
        debug_assert!(self.running.is_empty() && self.ended.is_empty());
        self.tasks.clear();
    }

    pub(super) fn tool_of(&self, task: usize) -> usize {
        self.tasks[task].tool
    }

    pub(super) fn attempts(&self, task: usize) -> u32 {
        self.tasks[task].attempts
    }

    /// What a task's calls cost so far.
    pub(super) fn cost_micros(&self, task: usize) -> u64 {
        let task = &self.tasks[task];
        u64::from(task.attempts) * self.tools[task.tool].quota.price_micros
    }

    pub(super) fn quota(&self, tool: usize) -> &Quota {
        &self.tools[tool].quota
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    pub(super) fn money_micros(&self) -> u64 {
        self.money_micros
    }

    pub(super) fn next(&mut self, now_us: u64) -> Step {
        if let Some(step) = self.ended.pop_front() {
            let (task, end) = step;
            return Step::End { task, end };
        }
        if let Some(call) = self.overdue(now_us) {
            return Step::GiveUp { call };
        }
        if self.budget.until_us.is_some_and(|until| now_us >= until) {
            let running: Vec<u64> = self.running.keys().copied().collect();
            if let Some(call) = running.first() {
                self.give_up(*call, now_us);
                return Step::GiveUp { call: *call };
            }
            self.stop_waiting("budget of time for tools");
            if !self.ended.is_empty() {
                return self.next(now_us);
            }
        }
        let mut wake_us: Option<u64> = None;
        let mut sooner = |at: u64| wake_us = Some(wake_us.map_or(at, |wake| wake.min(at)));
        let room = self.running.len() + self.given_up.len() < self.budget.workers;
        for resource in 0..self.resources.len() {
            let Some(&(not_before, task)) = self.waiting[resource].first() else {
                continue;
            };
            if self.is_hopeless(resource, task, now_us) {
                return self.next(now_us);
            }
            let opens = self.resources[resource].opens_us(now_us);
            let Some(opens) = opens.filter(|_| room) else {
                if self.running.is_empty() {
                    sooner(self.patience_us(task));
                }
                continue;
            };
            let start = opens.max(not_before);
            if start > now_us {
                sooner(start);
                continue;
            }
            self.waiting[resource].pop_first();
            return self.start(resource, task, now_us);
        }
        for running in self.running.values() {
            sooner(running.deadline_us + GRACE_US);
        }
        match (wake_us, self.budget.until_us) {
            (None, _) => Step::Done,
            (Some(wake), until) => Step::Wait {
                until_us: until.map_or(wake, |until| wake.min(until)),
            },
        }
    }

    /// A call has returned; its task, where somebody waits for it and it has read something.
    pub(super) fn finish(
        &mut self,
        call: u64,
        failure: Option<ToolError>,
        now_us: u64,
    ) -> Option<usize> {
        if let Some(resource) = self.given_up.remove(&call) {
            self.resources[resource].unstick();
            self.resources[resource].free();
            return None;
        }
        let running = self.running.remove(&call)?;
        let resource = self.tasks[running.task].resource;
        self.resources[resource].free();
        match failure {
            None => {
                self.resources[resource].succeed();
                Some(running.task)
            }
            Some(error) => {
                self.fail(&running, error, now_us);
                None
            }
        }
    }

    /// Ends everything: what was started is cancelled, the rest is not run.
    pub(super) fn cancel(&mut self, now_us: u64) {
        let running: Vec<u64> = self.running.keys().copied().collect();
        for call in running {
            self.give_up(call, now_us);
        }
        self.stop_waiting("cancelled");
    }

    /// Until when a task waits for calls that were given up to return and leave their slots.
    fn patience_us(&self, task: usize) -> u64 {
        let quota = &self.tools[self.tasks[task].tool].quota;
        let patience_us = quota.timeout_ms.saturating_mul(1_000);
        self.gave_up_us.saturating_add(patience_us)
    }

    fn overdue(&mut self, now_us: u64) -> Option<u64> {
        let late = |running: &Running| now_us >= running.deadline_us + GRACE_US;
        let (call, running) = self.running.iter().find(|(_, running)| late(running))?;
        let call = *call;
        let quota = &self.tools[self.tasks[running.task].tool].quota;
        let after_ms = quota.timeout_ms;
        let running = self.running.remove(&call)?;
        let resource = self.tasks[running.task].resource;
        self.resources[resource].give_up();
        self.given_up.insert(call, resource);
        self.gave_up_us = now_us;
        self.fail(&running, ToolError::TimedOut { after_ms }, now_us);
        Some(call)
    }

    /// Cancels a call's task; the call keeps its slot until it returns.
    fn give_up(&mut self, call: u64, now_us: u64) {
        let Some(running) = self.running.remove(&call) else {
            return;
        };
        let resource = self.tasks[running.task].resource;
        self.resources[resource].give_up();
        self.given_up.insert(call, resource);
        self.gave_up_us = now_us;
        self.ended.push_back((running.task, End::Cancelled));
    }

    fn stop_waiting(&mut self, reason: &str) {
        for queue in &mut self.waiting {
            for (_, task) in std::mem::take(queue) {
                let end = match self.tasks[task].attempts {
                    0 => End::NotRun(reason.to_owned()),
                    _ => End::Cancelled,
                };
                self.ended.push_back((task, end));
            }
        }
    }

    /// Ends a waiting task that cannot be served; its earlier failure, if any, stands.
    fn is_hopeless(&mut self, resource: usize, task: usize, now_us: u64) -> bool {
        let tool = self.tasks[task].tool;
        let ToolLoad { quota, name, calls } = &self.tools[tool];
        let money = self.money_micros.saturating_add(quota.price_micros);
        let closed_until = self.resources[resource].closed_until_us();
        let closed_us = closed_until.saturating_sub(now_us);
        let reason = if *calls >= quota.calls_max {
            format!("budget calls_max of tool {name}")
        } else if self.budget.calls_max.is_some_and(|most| self.calls >= most) {
            "budget of calls for tools".to_owned()
        } else if self
            .budget
            .money_max_micros
            .is_some_and(|most| money > most)
        {
            "budget of money for tools".to_owned()
        } else if closed_us > quota.wait_max_ms.saturating_mul(1_000) {
            let seconds = closed_us.div_ceil(1_000_000);
            format!("rate_limited: tool {name} is to be left alone for {seconds} s")
        } else if now_us >= self.patience_us(task)
            && (self.resources[resource].is_stuck()
                || (self.running.is_empty() && self.given_up.len() >= self.budget.workers))
        {
            format!("unavailable: no call that was given up has returned; tool {name} has no slot")
        } else {
            return false;
        };
        self.waiting[resource].pop_first();
        let task_state = &mut self.tasks[task];
        let end = match task_state.last.take() {
            None => End::NotRun(reason),
            Some(error) => End::Failed {
                error,
                attempts: task_state.attempts,
            },
        };
        self.ended.push_back((task, end));
        true
    }

    fn start(&mut self, resource: usize, task: usize, now_us: u64) -> Step {
        let call = self.calls;
        self.calls += 1;
        self.tasks[task].attempts += 1;
        let tool = &mut self.tools[self.tasks[task].tool];
        tool.calls += 1;
        self.money_micros += tool.quota.price_micros;
        self.resources[resource].start(now_us);
        let running = Running {
            task,
            started_us: now_us,
            deadline_us: now_us.saturating_add(tool.quota.timeout_ms.saturating_mul(1_000)),
        };
        self.running.insert(call, running);
        Step::Start { call, task }
    }

    fn fail(&mut self, running: &Running, error: ToolError, now_us: u64) {
        let task = &self.tasks[running.task];
        let quota = &self.tools[task.tool].quota;
        let resource = &mut self.resources[task.resource];
        if matches!(error, ToolError::RateLimited { .. }) {
            resource.limit(running.started_us, now_us);
        }
        let asked_ms = error.retry_after_ms().unwrap_or(0);
        resource.close(now_us.saturating_add(asked_ms.saturating_mul(1_000)));
        let again = error.is_transient()
            && task.attempts < quota.attempts_max
            && asked_ms <= quota.wait_max_ms;
        if again {
            let wait_us = self.backoff_us(task).max(asked_ms.saturating_mul(1_000));
            let queue = &mut self.waiting[task.resource];
            queue.insert((now_us.saturating_add(wait_us), running.task));
            self.tasks[running.task].last = Some(error);
            return;
        }
        let end = match error {
            ToolError::Cancelled => End::Cancelled,
            error => End::Failed {
                error,
                attempts: task.attempts,
            },
        };
        self.ended.push_back((running.task, end));
    }

    /// Between half of the doubled pause and all of it; where, follows from the seed and the task.
    fn backoff_us(&self, task: &Task) -> u64 {
        let quota = &self.tools[task.tool].quota;
        let doubled = quota
            .backoff_ms
            .saturating_mul(1_u64 << (task.attempts - 1).min(32));
        let most_us = doubled.min(quota.wait_max_ms).saturating_mul(1_000);
        let mut canonical = Canonical::new("operator 2026 tool backoff v1");
        canonical
            .u64(self.seed)
            .bytes(task.key.as_bytes())
            .u32(task.attempts);
        let [a, b, c, d, ..] = canonical.digest();
        let drawn = u64::from(u32::from_le_bytes([a, b, c, d]));
        most_us / 2 + drawn % (most_us / 2 + 1)
    }
}
