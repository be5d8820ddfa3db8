//! A tracker in memory that does, drops, delays and lies as it is told, and counts what it did.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use operator::effect::{
    Dispatch, EffectRequest, Effector, Found, Journal, Leases, Limits, Observation, Order, Outcome,
    Performer, Unreadable, perform,
};
use operator::id::EffectKey;
use operator::infer::CancelFlag;

use super::answer;

/// What happens to one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Fine,
    /// It is done, and the answer is lost.
    DoneUnheard,
    /// It is lost on the way.
    Lost,
    /// It is lost, and arrives when the next write does.
    Late,
    /// The process dies before it is sent.
    DiesBefore,
    /// The process dies after it is done.
    DiesAfter,
    /// The tracker is busy.
    Busy,
    /// Somebody else changes the issue first.
    Overtaken,
    /// The tracker says yes and does nothing.
    Lies,
    /// The tracker says no.
    Refused,
}

#[derive(Default)]
struct Issue {
    version: u64,
    /// Key, text and the version made.
    comments: Vec<(EffectKey, String, u64)>,
}

type AtWrite = Box<dyn FnMut(&EffectKey)>;

pub struct Tracker {
    pub repeatable: bool,
    issues: RefCell<BTreeMap<String, Issue>>,
    pub fates: RefCell<VecDeque<Fate>>,
    late: RefCell<Vec<(EffectRequest, EffectKey, u64)>>,
    /// Called at every write, before it.
    pub at_write: RefCell<AtWrite>,
    pub writes: RefCell<BTreeMap<EffectKey, u32>>,
    pub reads: Cell<u32>,
    pub unreadable: Cell<bool>,
}

impl Tracker {
    pub fn new(resources: &[&str], fates: &[Fate]) -> Self {
        let issues = resources
            .iter()
            .map(|name| ((*name).to_owned(), Issue::default()));
        Self {
            repeatable: true,
            issues: RefCell::new(issues.collect()),
            fates: RefCell::new(fates.iter().copied().collect()),
            late: RefCell::default(),
            at_write: RefCell::new(Box::new(|_| {})),
            writes: RefCell::default(),
            reads: Cell::new(0),
            unreadable: Cell::new(false),
        }
    }

    /// Times that each key was done.
    pub fn done(&self) -> BTreeMap<EffectKey, usize> {
        let mut done = BTreeMap::new();
        for issue in self.issues.borrow().values() {
            for (key, ..) in &issue.comments {
                *done.entry(*key).or_default() += 1;
            }
        }
        done
    }

    pub fn touch(&self, resource: &str) {
        self.issues.borrow_mut().get_mut(resource).unwrap().version += 1;
    }

    pub fn rewrite(&self, resource: &str, text: &str) {
        let mut issues = self.issues.borrow_mut();
        let issue = issues.get_mut(resource).unwrap();
        issue.version += 1;
        issue.comments[0].1 = text.to_owned();
    }

    fn apply(&self, request: &EffectRequest, key: &EffectKey, version: u64) -> Dispatch {
        let mut issues = self.issues.borrow_mut();
        let Some(issue) = issues.get_mut(&request.resource) else {
            return Dispatch::Refused("no such issue".to_owned());
        };
        // A tracker without keys would do it again: only the driver keeps it from that.
        if self.repeatable && issue.comments.iter().any(|(known, ..)| known == key) {
            return Dispatch::Accepted;
        }
        if self.repeatable && issue.version != version {
            return Dispatch::Moved(format!("at {}", issue.version));
        }
        issue.version += 1;
        let text = request.text.clone().unwrap();
        issue.comments.push((*key, text, issue.version));
        Dispatch::Accepted
    }
}

impl Effector for Tracker {
    fn repeatable(&self) -> bool {
        self.repeatable
    }

    fn read_back(
        &self,
        request: &EffectRequest,
        key: &EffectKey,
    ) -> Result<Observation, Unreadable> {
        self.reads.set(self.reads.get() + 1);
        if self.unreadable.get() {
            return Err(Unreadable {
                after_ms: None,
                reason: "away".to_owned(),
            });
        }
        let issues = self.issues.borrow();
        let issue = issues.get(&request.resource);
        let found = issue.and_then(|issue| issue.comments.iter().find(|(known, ..)| known == key));
        Ok(Observation {
            version: issue.map(|issue| issue.version.to_string()),
            found: found.map(|(_, text, version)| Found {
                action: request.action,
                set: None,
                text: Some(text.clone()),
                version: version.to_string(),
            }),
            read_from: "memory".to_owned(),
        })
    }

    fn dispatch(&self, order: Order<'_>) -> Dispatch {
        (self.at_write.borrow_mut())(order.key);
        *self.writes.borrow_mut().entry(*order.key).or_default() += 1;
        let version: u64 = order.version.parse().unwrap();
        for (request, key, version) in self.late.take() {
            self.apply(&request, &key, version);
        }
        let unknown = || Dispatch::Unknown {
            after_ms: None,
            reason: "no answer".to_owned(),
        };
        let fate = self.fates.borrow_mut().pop_front().unwrap_or(Fate::Fine);
        match fate {
            Fate::Fine => self.apply(order.request, order.key, version),
            Fate::DoneUnheard => {
                self.apply(order.request, order.key, version);
                unknown()
            }
            Fate::Lost => unknown(),
            Fate::Late => {
                let write = (order.request.clone(), *order.key, version);
                self.late.borrow_mut().push(write);
                unknown()
            }
            // Silent: the panic hook is not asked.
            Fate::DiesBefore => std::panic::resume_unwind(Box::new("dies")),
            Fate::DiesAfter => {
                self.apply(order.request, order.key, version);
                std::panic::resume_unwind(Box::new("dies"))
            }
            Fate::Busy => Dispatch::Later {
                after_ms: Some(10),
                reason: "busy".to_owned(),
            },
            Fate::Overtaken => {
                self.touch(&order.request.resource);
                self.apply(order.request, order.key, version)
            }
            Fate::Lies => Dispatch::Accepted,
            Fate::Refused => Dispatch::Refused("no".to_owned()),
        }
    }
}

/// One process: opens the journal, does the effects, and ends; none where it died.
pub fn process(
    directory: &Path,
    tracker: &Tracker,
    requests: &[EffectRequest],
) -> Option<Vec<Outcome>> {
    let cancel = CancelFlag::new();
    process_with(directory, tracker, requests, &cancel)
}

pub fn process_with(
    directory: &Path,
    tracker: &Tracker,
    requests: &[EffectRequest],
    cancel: &CancelFlag,
) -> Option<Vec<Outcome>> {
    let now = Cell::new(1_000);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut journal = Journal::open(directory).unwrap();
        let leases = Leases::new(&directory.join("leases"), "run", 30_000).unwrap();
        perform(
            requests,
            answer(),
            &mut Performer {
                journal: &mut journal,
                leases: &leases,
                effector: tracker,
                cancel,
                clock: &|| now.get(),
                pause: &|time: Duration| now.set(now.get() + time.as_millis() as u64),
                limits: Limits::default(),
            },
        )
        .unwrap()
    }))
    .ok()
}
