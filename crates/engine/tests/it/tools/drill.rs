//! A thousand calls against a resource that is slow, overloaded, broken and silent: the quotas hold as
//! the resource itself counts them, identical reads are sent once, and every unit ends once and rightly.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use engine::tools::{SystemClock, open};
use operator::Plan;
use operator::fact::Status;
use operator::infer::{
    Answer, BackendIdentity, CancelFlag, Completion, Infer, InferError, InferJob, JobUsage,
    UnitOutcome, UnitUsage,
};
use operator::ops::partition;
use operator::record::read_bytes;
use operator::run::{RunOptions, RunOutcome, run};
use operator::tool::Toolbox;
use serde_json::json;

use super::server::{self, Server};

const UNITS: u32 = 1_000;
/// Different threads that the units name: each third unit names one that another names too.
const THREADS: u32 = 700;
const CONCURRENCY: u32 = 8;
const PER_SECOND: u32 = 400;
const BURST: u32 = 20;
const TIMEOUT: Duration = Duration::from_secs(3);

/// How a thread behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Quick,
    Slow,
    /// Overloaded at first.
    Busy,
    /// Overloaded at first, and says for how long.
    BusyForASecond,
    /// Broken at first.
    Broken,
    /// Broken for ever.
    Dead,
    /// Not there.
    Missing,
    /// Never answers.
    Silent,
}

fn behaviour(thread: u32) -> Kind {
    match thread {
        3 | 103 => Kind::Silent,
        7 | 507 => Kind::BusyForASecond,
        _ => match thread % 10 {
            0 => Kind::Slow,
            1 => Kind::Busy,
            2 => Kind::Broken,
            4 if thread.is_multiple_of(4) => Kind::Dead,
            5 if thread.is_multiple_of(3) => Kind::Missing,
            _ => Kind::Quick,
        },
    }
}

impl Kind {
    fn answer(self, before: u32) -> server::Answer {
        let comments = || server::Answer::ok(r#"[{"body":"it is odd"}]"#);
        match (self, before) {
            (Self::Slow, _) => server::Answer::Slow(
                Duration::from_millis(40),
                String::from(r#"[{"body":"slow"}]"#),
            ),
            (Self::Busy, 0) => server::Answer::status(429),
            (Self::BusyForASecond, 0) => {
                let wait = vec![("retry-after", String::from("1"))];
                server::Answer::Reply(429, wait, String::new())
            }
            (Self::Broken, 0) | (Self::Dead, _) => server::Answer::status(500),
            (Self::Missing, _) => server::Answer::status(404),
            // It counts as under way only while the client is sure to wait.
            (Self::Silent, _) => server::Answer::Hang(TIMEOUT / 2),
            _ => comments(),
        }
    }

    /// Requests that one read of it takes, of at most three.
    fn requests(self) -> u32 {
        match self {
            Self::Quick | Self::Slow | Self::Missing => 1,
            Self::Busy | Self::BusyForASecond | Self::Broken => 2,
            Self::Dead | Self::Silent => 3,
        }
    }

    /// How its units end.
    fn ends(self) -> (Status, &'static str) {
        match self {
            Self::Dead => (Status::Errored, "unavailable: "),
            Self::Missing => (Status::Errored, "refused: "),
            Self::Silent => (Status::Errored, "timed_out: "),
            _ => (Status::Decided, ""),
        }
    }
}

fn thread(unit: u32) -> u32 {
    unit % THREADS
}

fn plan(address: &str) -> Plan {
    let tool = format!(
        "kind = \"http\"\nurl = \"http://{address}/threads/{{key}}\"\nprivate_hosts = [\"127.0.0.1\"]\n\
         arguments = {{ key = {{ field = \"thread\", type = \"integer\" }} }}\n\
         concurrency = {CONCURRENCY}\nper_second = {PER_SECOND}\nburst = {BURST}\nattempts_max = 3\n\
         timeout_ms = {}\nbackoff_ms = 5\nwait_max_ms = 20_000",
        TIMEOUT.as_millis()
    );
    super::plan(Path::new("."), &tool)
}

/// Decides every unit; no model is wanted here, for what is tried is the way to it.
struct Decider(BackendIdentity);

impl Infer for Decider {
    fn identity(&self) -> &BackendIdentity {
        &self.0
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        for place in 0..job.units.len() {
            if job.cancel.is_cancelled() {
                break;
            }
            let answer = Answer::from_ppm(vec![900_000, 100_000], 1_000_000).unwrap();
            sink(Completion {
                unit_id: job.units.id(place).clone(),
                outcome: UnitOutcome::Answered(vec![answer]),
                usage: UnitUsage::default(),
            });
        }
        Ok(JobUsage::default())
    }
}

/// Runs the plan over so many records.
fn go(plan: &Plan, units: u32, cancel: &CancelFlag) -> RunOutcome {
    let records: Vec<_> = (0..units)
        .map(|id| json!({ "id": id, "title": format!("number {id}"), "thread": thread(id) }))
        .collect();
    let bytes = serde_json::to_vec(&records).unwrap();
    let (artifact, records, bad) = read_bytes("records.json", &bytes, None).unwrap();
    let partition = partition(plan, artifact, records, bad).unwrap();
    let clock = SystemClock::default();
    let toolbox = Toolbox {
        open: open(plan, &[String::from("look")]).unwrap(),
        clock: &clock,
    };
    let options = RunOptions {
        limit: None,
        redact: false,
        clock: &|| 0,
        cancel,
        larger: None,
        tools: Some(toolbox),
    };
    let mut decider = Decider(BackendIdentity {
        name: String::from("decider"),
        digest: [9; 32],
        simulated: false,
        describe: String::from("decides every unit"),
    });
    run(
        plan,
        partition,
        &mut decider,
        None,
        options,
        &mut Vec::new(),
        None,
    )
    .unwrap()
}

#[test]
fn a_thousand_calls_keep_every_quota_and_lose_no_unit() {
    let server = Server::start(|path, before| {
        let thread = path
            .rsplit('/')
            .next()
            .and_then(|number| number.parse().ok());
        behaviour(thread.unwrap()).answer(before)
    });
    let plan = plan(&server.address);
    let began = Instant::now();
    let outcome = go(&plan, UNITS, &CancelFlag::new());
    let took = began.elapsed();
    let seen = server.seen();

    // The quotas, as the server counts them.
    assert!(
        seen.most_under_way <= CONCURRENCY,
        "{} at once",
        seen.most_under_way
    );
    for (place, arrival) in (1_u32..).zip(&seen.arrivals) {
        let allowed = f64::from(BURST) + f64::from(PER_SECOND) * (*arrival - began).as_secs_f64();
        assert!(f64::from(place) <= allowed, "{place} after {allowed}");
    }

    // Identical reads are sent once, and each as often as its kind takes.
    assert_eq!(seen.paths.len(), THREADS as usize);
    let mut expected = 0;
    for number in 0..THREADS {
        let wanted = behaviour(number).requests();
        assert_eq!(
            seen.paths[&format!("/threads/{number}")],
            wanted,
            "{number}"
        );
        expected += u64::from(wanted);
    }
    let usage = outcome.usage.tools;
    assert_eq!(usage.calls, expected);
    assert_eq!(usage.calls, seen.arrivals.len() as u64);
    assert_eq!(usage.requests, u64::from(UNITS));
    assert_eq!(usage.duplicates, u64::from(UNITS - THREADS));
    assert_eq!(usage.retries, expected - u64::from(THREADS));

    // No unit is lost, and each ends as its thread makes it.
    assert_eq!(outcome.facts.len(), UNITS as usize);
    let mut ends: BTreeMap<Kind, u32> = BTreeMap::new();
    for (unit, fact) in (0..UNITS).zip(&outcome.facts) {
        assert_eq!(fact.unit_id.as_str(), unit.to_string());
        let kind = behaviour(thread(unit));
        let (status, reason) = kind.ends();
        assert_eq!(fact.status, status, "{unit}: {:?}", fact.reason);
        let said = fact.reason.as_deref().unwrap_or_default();
        assert!(said.starts_with(reason), "{unit}: {said}");
        *ends.entry(kind).or_default() += 1;
    }
    let counts = outcome.answer.coverage;
    let failed: u32 = [Kind::Dead, Kind::Missing, Kind::Silent]
        .iter()
        .map(|kind| ends[kind])
        .sum();
    assert_eq!(
        (counts.errored, counts.decided),
        (u64::from(failed), u64::from(UNITS - failed))
    );
    println!(
        "{UNITS} units over {THREADS} threads: {} calls in {took:.1?}, at most {} at once; {ends:?}",
        usage.calls, seen.most_under_way
    );
}

#[test]
fn a_cancellation_is_answered_at_once_whatever_hangs() {
    let server = Server::start(|_, _| server::Answer::Hang(Duration::ZERO));
    let plan = plan(&server.address);
    let cancel = CancelFlag::new();
    let (outcome, late) = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let outcome = go(&plan, 60, &cancel);
            (outcome, Instant::now())
        });
        while server.requests() < CONCURRENCY as usize {
            std::thread::sleep(Duration::from_millis(5));
        }
        let cancelled = Instant::now();
        cancel.cancel();
        let (outcome, ended) = running.join().unwrap();
        (outcome, ended - cancelled)
    });
    println!("cancelled after {late:?}");
    // Well before the time limit of any call; how long exactly depends on the machine.
    assert!(late < TIMEOUT / 2, "{late:?}");
    let counts = outcome.answer.coverage;
    let (begun, rest) = (u64::from(CONCURRENCY), 60 - u64::from(CONCURRENCY));
    assert_eq!((counts.cancelled, counts.not_run), (begun, rest));
    assert_eq!(outcome.facts.len(), 60);
}
