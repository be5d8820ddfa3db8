//! The kernel with its threads: permission, types, identical requests, memory, cancellation.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use operator::Plan;
use operator::infer::CancelFlag;
use operator::store::{ContentStore, Kind, MemoryStore};
use operator::tool::{
    ArgumentValue, Arguments, Call, Capability, Clock, Kernel, ObservationCache, OpenTool, Reply,
    StoredObservations, Tool, ToolBudget, ToolError, ToolOutcome, ToolRequest, ToolUsage,
};

use crate::input::PLAN;

const TOOL: &str = r#"
[[tool]]
name = "look"
kind = "file"
root = "."
file = "{path}"
arguments = { path = { field = "path" } }
concurrency = 3
backoff_ms = 1
timeout_ms = 60_000
max_age = 100
"#;

/// Does what the argument says, and counts how often it was told so.
#[derive(Default)]
struct Look {
    seen: Mutex<BTreeMap<String, u32>>,
    busy: AtomicU64,
    busiest: AtomicU64,
    cancelled: Arc<AtomicBool>,
}

impl Tool for Look {
    fn scope(&self) -> &str {
        "here"
    }

    fn resource(&self, arguments: &Arguments) -> Result<String, ToolError> {
        match &*arguments.text("path") {
            "outside" => Err(ToolError::Denied("outside".to_owned())),
            _ => Ok("here".to_owned()),
        }
    }

    fn call(&self, arguments: &Arguments, call: &Call) -> Result<Reply, ToolError> {
        let path = arguments.text("path").into_owned();
        let times = {
            let mut seen = self.seen.lock().unwrap();
            let times = seen.entry(path.clone()).or_default();
            *times += 1;
            *times
        };
        let busy = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
        self.busiest.fetch_max(busy, Ordering::SeqCst);
        let result = match path.as_str() {
            "panics" => {
                self.busy.fetch_sub(1, Ordering::SeqCst);
                panic!("on purpose")
            }
            "twice" if times < 3 => Err(ToolError::unavailable("not yet")),
            "never" => Err(ToolError::unavailable("not ever")),
            "hangs" => {
                while !call.cancel.is_cancelled() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                self.cancelled.store(true, Ordering::SeqCst);
                Err(ToolError::Cancelled)
            }
            _ => Ok(Reply {
                body: format!("{path} {times}").into_bytes(),
                media: "text/plain".to_owned(),
                truncated: false,
                from: path.clone(),
            }),
        };
        self.busy.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

/// A clock whose seconds a test sets; its microseconds go on by themselves.
#[derive(Default)]
struct TestClock {
    us: AtomicU64,
    seconds: AtomicU64,
}

impl Clock for TestClock {
    fn now_us(&self) -> u64 {
        self.us.fetch_add(1_000, Ordering::SeqCst)
    }

    fn unix_seconds(&self) -> u64 {
        self.seconds.load(Ordering::SeqCst)
    }
}

fn open(tool: &Arc<Look>) -> OpenTool {
    let mut plan = Plan::parse(&format!("{PLAN}{TOOL}"), "plan.toml").unwrap();
    let spec = plan.tools.remove(0);
    let capability = Capability::grant(&spec, &["look".to_owned()]).unwrap();
    OpenTool::new(spec, capability, Arc::clone(tool) as Arc<dyn Tool>)
}

fn kernel<'c>(tool: &Arc<Look>, clock: &'c TestClock) -> Kernel<'c> {
    Kernel::new(vec![open(tool)], ToolBudget::default(), 3, clock)
}

fn request(path: &str) -> ToolRequest {
    let path = ArgumentValue::Text(path.to_owned());
    ToolRequest {
        tool: "look".to_owned(),
        arguments: Arguments::from_iter([("path".to_owned(), path)]),
    }
}

/// Runs requests; each must end exactly once.
fn ends(
    kernel: &mut Kernel<'_>,
    requests: Vec<ToolRequest>,
    cache: Option<&dyn ObservationCache>,
) -> (Vec<ToolOutcome>, ToolUsage) {
    let mut ends: Vec<Option<ToolOutcome>> = vec![None; requests.len()];
    let usage = kernel
        .run(
            requests,
            cache,
            &CancelFlag::new(),
            &mut |request, outcome| {
                assert!(
                    ends[request].replace(outcome).is_none(),
                    "{request} ended twice"
                );
                Ok(())
            },
        )
        .unwrap();
    (ends.into_iter().map(Option::unwrap).collect(), usage)
}

fn text(outcome: &ToolOutcome) -> (&str, bool) {
    match outcome {
        ToolOutcome::Observed {
            observation,
            shared,
        } => (observation.text().unwrap(), *shared),
        other => panic!("{other:?}"),
    }
}

#[test]
fn identical_requests_are_sent_once_and_all_get_what_was_read() {
    let (tool, clock) = (Arc::new(Look::default()), TestClock::default());
    let mut kernel = kernel(&tool, &clock);
    let requests = (0..90).map(|n| request(&format!("p{}", n % 30))).collect();
    let (outcomes, usage) = ends(&mut kernel, requests, None);
    for (n, outcome) in outcomes.iter().enumerate() {
        assert_eq!(text(outcome), (&*format!("p{} 1", n % 30), n >= 30));
    }
    assert_eq!(
        (usage.requests, usage.duplicates, usage.calls),
        (90, 60, 30)
    );
    // What was read in a run is not read again by a later stage.
    let (outcomes, usage) = ends(&mut kernel, vec![request("p7"), request("new")], None);
    assert_eq!(text(&outcomes[0]), ("p7 1", true));
    assert_eq!((usage.remembered, usage.calls), (1, 1));
    assert!(tool.busiest.load(Ordering::SeqCst) <= 3);
}

#[test]
fn failures_are_told_apart_and_only_passing_ones_are_tried_again() {
    let (tool, clock) = (Arc::new(Look::default()), TestClock::default());
    let mut kernel = kernel(&tool, &clock);
    let mut integer = request("x");
    integer.arguments = Arguments::from_iter([("path".to_owned(), ArgumentValue::Integer(1))]);
    let mut unknown = request("x");
    unknown.tool = "other".to_owned();
    let requests = vec![
        request("twice"),
        request("never"),
        request("panics"),
        request("outside"),
        integer,
        unknown,
    ];
    let (outcomes, usage) = ends(&mut kernel, requests, None);
    assert_eq!(text(&outcomes[0]), ("twice 3", false));
    let failed = |outcome: &ToolOutcome| match outcome {
        ToolOutcome::Failed { error, attempts } => (error.as_str(), *attempts),
        other => panic!("{other:?}"),
    };
    assert_eq!(failed(&outcomes[1]), ("unavailable", 3));
    assert_eq!(failed(&outcomes[2]), ("refused", 1));
    assert_eq!(failed(&outcomes[3]), ("denied", 0));
    assert_eq!(failed(&outcomes[4]), ("malformed", 0));
    assert_eq!(failed(&outcomes[5]), ("denied", 0));
    assert_eq!((usage.calls, usage.retries), (7, 4));
    let ToolOutcome::Observed { observation, .. } = &outcomes[0] else {
        panic!()
    };
    assert_eq!(observation.head.attempts, 3);
}

#[test]
fn an_observation_is_believed_for_as_long_as_the_plan_says() {
    let (tool, clock) = (Arc::new(Look::default()), TestClock::default());
    let store = MemoryStore::new();
    let cache = StoredObservations(&store);
    let look = |seconds: u64| {
        clock.seconds.store(seconds, Ordering::SeqCst);
        let (outcomes, usage) = ends(&mut kernel(&tool, &clock), vec![request("a")], Some(&cache));
        (text(&outcomes[0]).0.to_owned(), usage.remembered)
    };
    assert_eq!(look(1_000), ("a 1".to_owned(), 0));
    assert_eq!(look(1_100), ("a 1".to_owned(), 1));
    assert_eq!(
        look(1_101),
        ("a 2".to_owned(), 0),
        "one that is too old is read again"
    );
    assert_eq!(
        look(1_150),
        ("a 2".to_owned(), 1),
        "and the new one takes its place"
    );
    assert_eq!(
        look(1_100),
        ("a 3".to_owned(), 0),
        "one from the future is not believed"
    );
    assert_eq!(store.len(), 1);
}

#[test]
fn a_damaged_observation_is_read_again() {
    let (tool, clock) = (Arc::new(Look::default()), TestClock::default());
    /// Gives other bytes than were put.
    struct Damaged(MemoryStore);
    impl ContentStore for Damaged {
        fn get_bytes(&self, kind: Kind, key: &[u8; 32]) -> Option<Vec<u8>> {
            let mut bytes = self.0.get_bytes(kind, key)?;
            *bytes.last_mut()? ^= 1;
            Some(bytes)
        }
        fn put_bytes(
            &self,
            kind: Kind,
            entries: &[([u8; 32], Vec<u8>)],
        ) -> Result<(), operator::OperatorError> {
            self.0.put_bytes(kind, entries)
        }
    }
    let store = Damaged(MemoryStore::new());
    for wanted in ["a 1", "a 2"] {
        let cache = StoredObservations(&store);
        let (outcomes, _) = ends(&mut kernel(&tool, &clock), vec![request("a")], Some(&cache));
        assert_eq!(text(&outcomes[0]), (wanted, false));
    }
}

#[test]
fn a_cancelled_run_ends_though_its_calls_hang_and_tells_them() {
    let (tool, clock) = (Arc::new(Look::default()), TestClock::default());
    let mut kernel = kernel(&tool, &clock);
    let cancel = CancelFlag::new();
    let told = Arc::clone(&tool.cancelled);
    let mut requests = vec![request("a"), request("hangs"), request("hangs")];
    let mut late = vec![request("hangs")];
    late[0].arguments =
        Arguments::from_iter([("path".to_owned(), ArgumentValue::Text("hangs".to_owned()))]);
    requests.extend(late);
    let mut outcomes = BTreeMap::new();
    kernel
        .run(requests, None, &cancel, &mut |request, outcome| {
            // The first that is read stops the run, while the other call goes on.
            cancel.cancel();
            assert!(outcomes.insert(request, outcome).is_none());
            Ok(())
        })
        .unwrap();
    assert_eq!(text(&outcomes[&0]), ("a 1", false));
    for request in 1..4 {
        let outcome = &outcomes[&request];
        let stopped = matches!(outcome, ToolOutcome::Cancelled | ToolOutcome::NotRun(_));
        assert!(stopped, "{outcome:?}");
    }
    if tool.seen.lock().unwrap().contains_key("hangs") {
        for _ in 0..10_000 {
            if told.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("a call that nobody waits for was not told");
    }
}

#[test]
fn a_sink_that_fails_stops_the_batch_and_not_the_kernel() {
    let (tool, clock) = (Arc::new(Look::default()), TestClock::default());
    let mut kernel = kernel(&tool, &clock);
    let requests = (0..20).map(|n| request(&format!("p{n}"))).collect();
    let result = kernel.run(requests, None, &CancelFlag::new(), &mut |_, _| {
        Err(operator::OperatorError::UnknownCompletion {
            unit_id: "x".to_owned(),
        })
    });
    assert!(result.is_err());
    let (outcomes, _) = ends(&mut kernel, vec![request("after")], None);
    assert_eq!(text(&outcomes[0]), ("after 1", false));
}
