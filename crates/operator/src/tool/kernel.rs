//! The only caller of tools: permission, types, identical requests, memory, threads and outcomes.
//!
//! When what happens is decided by the schedule; here it is carried out. A call runs on its own
//! thread and is left behind when it does not return: no call can hold a run up. The clock is handed
//! in.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::schedule::{End, Schedule, Step};
use super::{Call, Observation, ObservationCache, OpenTool, Over, Reply, ToolError, ToolRequest};
use crate::error::OperatorError;
use crate::id::ContentHash;
use crate::infer::CancelFlag;

/// How often a wait looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(10);

/// Bytes of observations that are kept for later stages of the same run.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// The caller's clocks.
pub trait Clock: Sync {
    /// Microseconds; only differences matter.
    fn now_us(&self) -> u64;

    /// Seconds since 1970.
    fn unix_seconds(&self) -> u64;
}

/// Limits of all tools of a run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolBudget {
    /// Most calls, retries included.
    pub calls_max: Option<u64>,
    /// Most money, in millionths of the plan's unit.
    pub money_max_micros: Option<u64>,
    /// When to stop, by the kernel's clock in microseconds.
    pub until_us: Option<u64>,
    /// Most calls under way at once, over all resources.
    pub workers: usize,
}

impl Default for ToolBudget {
    fn default() -> Self {
        Self {
            calls_max: None,
            money_max_micros: None,
            until_us: None,
            workers: 32,
        }
    }
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolOutcome {
    /// Something was read.
    Observed {
        /// What.
        observation: Arc<Observation>,
        /// Whether no call was made for this request: it was looked up, or an identical one was sent.
        shared: bool,
    },
    /// Nothing was read.
    Failed {
        /// Why.
        error: ToolError,
        /// Calls that were made.
        attempts: u32,
    },
    /// The run was stopped after a call had been started.
    Cancelled,
    /// No call was started, and why.
    NotRun(String),
}

/// What requests came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolUsage {
    /// Requests.
    pub requests: u64,
    /// Of these, identical to an earlier one of the batch.
    pub duplicates: u64,
    /// Different requests whose observation was looked up.
    pub remembered: u64,
    /// Calls, retries included.
    pub calls: u64,
    /// Of these, repetitions.
    pub retries: u64,
    /// Bytes read.
    pub bytes: u64,
    /// What the calls cost.
    pub money_micros: u64,
}

impl std::ops::AddAssign for ToolUsage {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.duplicates += other.duplicates;
        self.remembered += other.remembered;
        self.calls += other.calls;
        self.retries += other.retries;
        self.bytes += other.bytes;
        self.money_micros += other.money_micros;
    }
}

/// Makes calls under the quotas of a run; one for the whole run, for quotas hold over all its stages.
pub struct Kernel<'c> {
    tools: Vec<OpenTool>,
    declarations: Vec<ContentHash>,
    clock: &'c dyn Clock,
    schedule: Schedule,
    resources: BTreeMap<String, (usize, Vec<usize>)>,
    kept: HashMap<ContentHash, Arc<Observation>>,
    kept_bytes: usize,
    flags: BTreeMap<u64, Arc<CancelFlag>>,
    sender: Sender<Returned>,
    returned: Receiver<Returned>,
}

/// A call that has returned.
struct Returned {
    call: u64,
    result: Result<Reply, ToolError>,
}

/// Takes the outcome of a request, named by its place in the batch.
type Sink<'s> = &'s mut dyn FnMut(usize, ToolOutcome) -> Result<(), OperatorError>;

/// Requests of one key.
struct Group {
    key: ContentHash,
    requests: Vec<usize>,
}

/// One batch under way.
struct Batch<'b> {
    requests: Vec<ToolRequest>,
    /// By task.
    groups: Vec<Group>,
    cache: Option<&'b dyn ObservationCache>,
    sink: Sink<'b>,
    fresh: Vec<(ContentHash, Arc<Observation>)>,
    usage: ToolUsage,
}

impl<'c> Kernel<'c> {
    /// Takes the tools that may be called; `seed` spreads retries.
    pub fn new(tools: Vec<OpenTool>, budget: ToolBudget, seed: u64, clock: &'c dyn Clock) -> Self {
        let mut schedule = Schedule::new(budget, seed);
        for open in &tools {
            schedule.add_tool(&open.spec.name, open.spec.quota);
        }
        let (sender, returned) = channel();
        Self {
            declarations: tools.iter().map(|open| open.spec.declaration()).collect(),
            tools,
            clock,
            schedule,
            resources: BTreeMap::new(),
            kept: HashMap::new(),
            kept_bytes: 0,
            flags: BTreeMap::new(),
            sender,
            returned,
        }
    }

    /// Ends every request in exactly one outcome, each handed to the sink as soon as it is known.
    ///
    /// Identical requests are sent once. Observations are looked up in the cache where their tool
    /// lets them be believed for some time, and what was read is put there. A cancellation is answered
    /// at once, whatever calls are under way.
    ///
    /// # Errors
    /// What the sink returns, and `Store` where an observation cannot be kept; calls under way are
    /// given up then.
    pub fn run(
        &mut self,
        requests: Vec<ToolRequest>,
        cache: Option<&dyn ObservationCache>,
        cancel: &CancelFlag,
        sink: Sink<'_>,
    ) -> Result<ToolUsage, OperatorError> {
        let (calls, money) = (self.schedule.calls(), self.schedule.money_micros());
        let mut batch = Batch {
            usage: ToolUsage {
                requests: requests.len() as u64,
                ..ToolUsage::default()
            },
            requests,
            groups: Vec::new(),
            cache,
            sink,
            fresh: Vec::new(),
        };
        let result = self
            .admit(&mut batch)
            .and_then(|()| self.carry_out(&mut batch, cancel));
        if result.is_err() {
            self.schedule.cancel(self.clock.now_us());
            self.drop_calls();
            while let Step::End { .. } = self.schedule.next(self.clock.now_us()) {}
        }
        self.schedule.clear();
        let stored = batch.flush();
        batch.usage.calls = self.schedule.calls() - calls;
        batch.usage.money_micros = self.schedule.money_micros() - money;
        result.and(stored).map(|()| batch.usage)
    }

    /// Refuses what may not be called, looks up what is known, and makes one task per key.
    fn admit(&mut self, batch: &mut Batch<'_>) -> Result<(), OperatorError> {
        let mut seen: HashMap<ContentHash, Result<usize, Arc<Observation>>> = HashMap::new();
        for index in 0..batch.requests.len() {
            let request = &batch.requests[index];
            let (tool, resource) = match self.examine(request) {
                Ok(found) => found,
                Err(error) => {
                    let failed = ToolOutcome::Failed { error, attempts: 0 };
                    (batch.sink)(index, failed)?;
                    continue;
                }
            };
            let key = request.key(&self.declarations[tool], self.tools[tool].tool.scope());
            match seen.get(&key) {
                Some(Ok(task)) => {
                    batch.usage.duplicates += 1;
                    batch.groups[*task].requests.push(index);
                }
                Some(Err(known)) => {
                    batch.usage.duplicates += 1;
                    let outcome = ToolOutcome::Observed {
                        observation: Arc::clone(known),
                        shared: true,
                    };
                    (batch.sink)(index, outcome)?;
                }
                None => match self.recall(tool, &key, batch.cache) {
                    Some(known) => {
                        batch.usage.remembered += 1;
                        seen.insert(key, Err(Arc::clone(&known)));
                        let outcome = ToolOutcome::Observed {
                            observation: known,
                            shared: true,
                        };
                        (batch.sink)(index, outcome)?;
                    }
                    None => {
                        let task = self.add_task(tool, resource, key);
                        debug_assert_eq!(task, batch.groups.len());
                        batch.groups.push(Group {
                            key,
                            requests: vec![index],
                        });
                        seen.insert(key, Ok(task));
                    }
                },
            }
        }
        Ok(())
    }

    fn examine(&self, request: &ToolRequest) -> Result<(usize, String), ToolError> {
        let named = |open: &OpenTool| open.spec.name == request.tool;
        let Some(tool) = self.tools.iter().position(named) else {
            let name = &request.tool;
            return Err(ToolError::Denied(format!(
                "no tool {name:?} is open; pass --allow {name} where the plan declares it"
            )));
        };
        let open = &self.tools[tool];
        request
            .arguments
            .check(&open.spec.arguments)
            .map_err(ToolError::Malformed)?;
        Ok((tool, open.tool.resource(&request.arguments)?))
    }

    /// What was read in this run, or lately enough in an earlier one.
    fn recall(
        &self,
        tool: usize,
        key: &ContentHash,
        cache: Option<&dyn ObservationCache>,
    ) -> Option<Arc<Observation>> {
        if let Some(known) = self.kept.get(key) {
            return Some(Arc::clone(known));
        }
        let max_age = self.tools[tool].spec.max_age_s;
        let known = cache.filter(|_| max_age > 0)?.get(key)?;
        let age = self
            .clock
            .unix_seconds()
            .checked_sub(known.head.observed_at)?;
        (age <= max_age).then(|| Arc::new(known))
    }

    fn add_task(&mut self, tool: usize, resource: String, key: ContentHash) -> usize {
        let now_us = self.clock.now_us();
        let schedule = &mut self.schedule;
        let (place, users) = self
            .resources
            .entry(resource)
            .or_insert_with(|| (schedule.add_resource(tool, now_us), vec![tool]));
        if !users.contains(&tool) {
            users.push(tool);
            schedule.share(tool, *place);
        }
        schedule.add_task(tool, *place, key)
    }

    fn carry_out(
        &mut self,
        batch: &mut Batch<'_>,
        cancel: &CancelFlag,
    ) -> Result<(), OperatorError> {
        let mut cancelled = false;
        loop {
            if cancel.is_cancelled() && !cancelled {
                cancelled = true;
                self.schedule.cancel(self.clock.now_us());
                self.drop_calls();
            }
            let now_us = self.clock.now_us();
            match self.schedule.next(now_us) {
                Step::Start { call, task } => self.start(call, task, batch),
                Step::GiveUp { call } => self.drop_call(call),
                Step::End { task, end } => batch.end(task, &end)?,
                Step::Done => return Ok(()),
                Step::Wait { until_us } => {
                    let until = Duration::from_micros(until_us.saturating_sub(now_us));
                    self.wait(batch, until.min(LOOK))?;
                }
            }
        }
    }

    /// Takes all calls that have returned; where none has, keeps what was read and waits.
    fn wait(&mut self, batch: &mut Batch<'_>, most: Duration) -> Result<(), OperatorError> {
        let mut any = false;
        while let Ok(returned) = self.returned.try_recv() {
            any = true;
            self.take(returned, batch)?;
        }
        if any {
            return Ok(());
        }
        batch.flush()?;
        match self.returned.recv_timeout(most) {
            Ok(returned) => self.take(returned, batch),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => unreachable!("the kernel holds a sender"),
        }
    }

    fn take(&mut self, returned: Returned, batch: &mut Batch<'_>) -> Result<(), OperatorError> {
        let Returned { call, result } = returned;
        self.flags.remove(&call);
        let (reply, failure) = match result {
            Ok(reply) => (Some(reply), None),
            Err(error) => (None, Some(error)),
        };
        let task = self.schedule.finish(call, failure, self.clock.now_us());
        let (Some(task), Some(reply)) = (task, reply) else {
            return Ok(());
        };
        let attempts = self.schedule.attempts(task);
        let observation = Arc::new(Observation::new(
            reply,
            self.clock.unix_seconds(),
            attempts,
            self.schedule.cost_micros(task),
        ));
        batch.usage.bytes += observation.body.len() as u64;
        let key = batch.groups[task].key;
        let bytes = observation.body.len();
        if self.kept_bytes + bytes <= KEPT_BYTES_MAX {
            self.kept_bytes += bytes;
            self.kept.insert(key, Arc::clone(&observation));
        }
        if self.tools[self.schedule.tool_of(task)].spec.max_age_s > 0 && batch.cache.is_some() {
            batch.fresh.push((key, Arc::clone(&observation)));
        }
        batch.observed(task, &observation)
    }

    fn start(&mut self, call: u64, task: usize, batch: &mut Batch<'_>) {
        if self.schedule.attempts(task) > 1 {
            batch.usage.retries += 1;
        }
        let tool = self.schedule.tool_of(task);
        let quota = self.schedule.quota(tool);
        let cancel = Arc::new(CancelFlag::new());
        let limits = Call {
            timeout: Duration::from_millis(quota.timeout_ms),
            bytes_max: quota.bytes_max,
            cut: quota.over == Over::Cut,
            cancel: Arc::clone(&cancel),
        };
        let arguments = batch.requests[batch.groups[task].requests[0]]
            .arguments
            .clone();
        let (tool, sender) = (Arc::clone(&self.tools[tool].tool), self.sender.clone());
        let work = move || {
            let called = catch_unwind(AssertUnwindSafe(|| tool.call(&arguments, &limits)));
            let result = called.unwrap_or_else(|_| {
                let message = "the tool itself failed; this is a fault of the program";
                Err(ToolError::Refused(message.to_owned()))
            });
            // Nobody listens where the run has ended meanwhile.
            let _ = sender.send(Returned { call, result });
        };
        self.flags.insert(call, cancel);
        let spawned = std::thread::Builder::new()
            .name(format!("tool call {call}"))
            .spawn(work);
        if let Err(error) = spawned {
            let result = Err(ToolError::unavailable(format!("no thread: {error}")));
            // The kernel holds the receiver.
            let _ = self.sender.send(Returned { call, result });
        }
    }

    fn drop_call(&mut self, call: u64) {
        if let Some(flag) = self.flags.remove(&call) {
            flag.cancel();
        }
    }

    fn drop_calls(&mut self) {
        for flag in std::mem::take(&mut self.flags).into_values() {
            flag.cancel();
        }
    }
}

impl Drop for Kernel<'_> {
    /// Tells calls that nobody waited for, so that their processes and connections end.
    fn drop(&mut self) {
        self.drop_calls();
    }
}

impl Batch<'_> {
    fn observed(
        &mut self,
        task: usize,
        observation: &Arc<Observation>,
    ) -> Result<(), OperatorError> {
        let requests = std::mem::take(&mut self.groups[task].requests);
        for (place, request) in requests.into_iter().enumerate() {
            let outcome = ToolOutcome::Observed {
                observation: Arc::clone(observation),
                shared: place > 0,
            };
            (self.sink)(request, outcome)?;
        }
        Ok(())
    }

    fn end(&mut self, task: usize, end: &End) -> Result<(), OperatorError> {
        let requests = std::mem::take(&mut self.groups[task].requests);
        for request in requests {
            let outcome = match end {
                End::Failed { error, attempts } => ToolOutcome::Failed {
                    error: error.clone(),
                    attempts: *attempts,
                },
                End::Cancelled => ToolOutcome::Cancelled,
                End::NotRun(reason) => ToolOutcome::NotRun(reason.clone()),
            };
            (self.sink)(request, outcome)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), OperatorError> {
        match self.cache {
            Some(cache) if !self.fresh.is_empty() => cache.put(&std::mem::take(&mut self.fresh)),
            _ => Ok(()),
        }
    }
}
