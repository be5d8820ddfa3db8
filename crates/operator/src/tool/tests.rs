//! The laws of the schedule, under random quotas, loads and resources, in virtual time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::schedule::{End, GRACE_US, Schedule, Step};
use super::{Over, Quota, ToolBudget, ToolError};
use crate::id::ContentHash;

/// How a call goes.
#[derive(Debug, Clone)]
enum Fate {
    Read,
    Fails(ToolError),
    /// Returns by itself so long after its time that it was given up.
    Late(u64),
    /// Never returns.
    Hangs,
}

#[derive(Debug, Clone)]
struct World {
    tools: Vec<Quota>,
    resources: usize,
    /// Tool and resource of each task.
    tasks: Vec<(usize, usize)>,
    /// Milliseconds and fate of each call, in order of start; over again when they run out.
    fates: Vec<(u64, Fate)>,
    budget: ToolBudget,
    cancel_at_us: Option<u64>,
}

fn quotas() -> impl Strategy<Value = Quota> {
    (
        1..5_u32,
        proptest::option::of(500..20_000_u64),
        1..4_u32,
        1..40_u64,
        1..5_u32,
        1..2_000_u64,
        (1..500_u64, 100..5_000_u64, 0..9_u64),
    )
        .prop_map(
            |(concurrency, rate, burst, calls, attempts, timeout, rest)| Quota {
                concurrency,
                per_kilosecond: rate,
                burst,
                bytes_max: 10,
                over: Over::Error,
                calls_max: calls,
                attempts_max: attempts,
                timeout_ms: timeout,
                backoff_ms: rest.0,
                wait_max_ms: rest.1,
                price_micros: rest.2,
            },
        )
}

fn fates() -> impl Strategy<Value = Fate> {
    let wait = proptest::option::of(0..8_000_u64);
    prop_oneof![
        6 => Just(Fate::Read),
        2 => wait.clone().prop_map(|retry_after_ms| Fate::Fails(ToolError::RateLimited {
            message: String::new(),
            retry_after_ms,
        })),
        2 => wait.prop_map(|retry_after_ms| Fate::Fails(ToolError::Unavailable {
            message: String::new(),
            retry_after_ms,
        })),
        1 => Just(Fate::Fails(ToolError::Refused(String::new()))),
        1 => (0..5_000_u64).prop_map(Fate::Late),
        1 => Just(Fate::Hangs),
    ]
}

fn worlds() -> impl Strategy<Value = World> {
    (1..4_usize, 1..4_usize).prop_flat_map(|(tools, resources)| {
        (
            proptest::collection::vec(quotas(), tools),
            proptest::collection::vec((0..tools, 0..resources), 1..60),
            proptest::collection::vec((0..1_500_u64, fates()), 1..60),
            proptest::option::of(1..60_u64),
            proptest::option::of(0..100_u64),
            proptest::option::of(0..60_000_000_u64),
            1..8_usize,
            proptest::option::weighted(0.3, 0..20_000_000_u64),
        )
            .prop_map(
                move |(tools, tasks, fates, calls, money, until, workers, cancel_at_us)| World {
                    tools,
                    resources,
                    tasks,
                    fates,
                    budget: ToolBudget {
                        calls_max: calls,
                        money_max_micros: money,
                        until_us: until,
                        workers,
                    },
                    cancel_at_us,
                },
            )
    })
}

/// What a world saw.
#[derive(Default)]
struct Seen {
    /// Start, task and the resource of every call.
    starts: Vec<(u64, usize, usize)>,
    /// By task, how often it ended.
    ends: BTreeMap<usize, u32>,
    read: u32,
}

/// Carries out a world in virtual time and checks at every instant what must hold then.
fn live(world: &World) -> Seen {
    let mut schedule = Schedule::new(world.budget, 7);
    for (place, quota) in world.tools.iter().enumerate() {
        schedule.add_tool(&format!("t{place}"), *quota);
    }
    let mut places: BTreeMap<usize, (usize, Vec<usize>)> = BTreeMap::new();
    for (number, (tool, resource)) in world.tasks.iter().enumerate() {
        let (place, users) = places
            .entry(*resource)
            .or_insert_with(|| (schedule.add_resource(*tool, 0), vec![*tool]));
        if !users.contains(tool) {
            users.push(*tool);
            schedule.share(*tool, *place);
        }
        let key = ContentHash::of_bytes(&number.to_le_bytes());
        assert_eq!(schedule.add_task(*tool, *place, key), number);
    }
    let strictest = |resource: usize| {
        let users = &places[&resource].1;
        users
            .iter()
            .map(|tool| world.tools[*tool].concurrency)
            .min()
    };
    let mut seen = Seen::default();
    let mut now = 0_u64;
    let mut cancelled = false;
    // Calls that have not returned: when they do (none: never), task and fate.
    let mut out: BTreeMap<u64, (Option<u64>, usize, Fate)> = BTreeMap::new();
    let mut closed = vec![0_u64; world.resources];
    for _ in 0..200_000 {
        if world.cancel_at_us.is_some_and(|at| now >= at) && !cancelled {
            cancelled = true;
            schedule.cancel(now);
        }
        let back = |out: &BTreeMap<u64, (Option<u64>, usize, Fate)>| {
            let due = out
                .iter()
                .filter_map(|(call, (at, ..))| Some(((*at)?, *call)));
            due.min()
        };
        if let Some((at, call)) = back(&out)
            && at <= now
        {
            let (_, task, fate) = out.remove(&call).unwrap();
            let failure = match fate {
                Fate::Fails(error) => Some(error),
                Fate::Read | Fate::Late(_) | Fate::Hangs => None,
            };
            let given_up = seen.ends.contains_key(&task);
            let asked = failure.as_ref().and_then(ToolError::retry_after_ms);
            if let Some(task) = schedule.finish(call, failure, now) {
                *seen.ends.entry(task).or_default() += 1;
                seen.read += 1;
            } else if let (Some(ms), false) = (asked, given_up) {
                let resource = world.tasks[task].1;
                closed[resource] = closed[resource].max(now + ms * 1_000);
            }
            continue;
        }
        match schedule.next(now) {
            Step::Start { call, task } => {
                assert!(!cancelled, "a call started after the cancellation");
                assert!(world.budget.until_us.is_none_or(|until| now < until));
                let (tool, resource) = world.tasks[task];
                assert!(now >= closed[resource], "Retry-After was not honoured");
                let (ms, fate) = world.fates[seen.starts.len() % world.fates.len()].clone();
                let timeout = world.tools[tool].timeout_ms;
                let returns = match fate {
                    Fate::Hangs => None,
                    Fate::Late(late) => Some(now + (timeout + late) * 1_000 + GRACE_US),
                    Fate::Read | Fate::Fails(_) => Some(now + ms.min(timeout) * 1_000),
                };
                out.insert(call, (returns, task, fate));
                seen.starts.push((now, task, resource));
                let busy =
                    |(_, task, _): &&(Option<u64>, usize, Fate)| world.tasks[*task].1 == resource;
                let busy = out.values().filter(busy).count();
                assert!(busy <= strictest(resource).unwrap() as usize);
                assert!(out.len() <= world.budget.workers);
            }
            Step::GiveUp { .. } => {}
            Step::End { task, end } => {
                *seen.ends.entry(task).or_default() += 1;
                let calls = seen.starts.iter().filter(|start| start.1 == task).count() as u32;
                match end {
                    End::Failed { attempts, .. } => assert_eq!(attempts, calls),
                    End::Cancelled => assert!(calls > 0),
                    End::NotRun(reason) => {
                        assert_eq!(calls, 0);
                        assert!(!reason.is_empty());
                    }
                }
            }
            Step::Wait { until_us } => {
                assert!(until_us > now, "a wait that does not wait");
                let back = back(&out).map_or(u64::MAX, |(at, _)| at);
                now = until_us.min(back.max(now));
                if let Some(at) = world.cancel_at_us
                    && !cancelled
                {
                    now = now.min(at.max(now));
                }
            }
            Step::Done => return seen,
        }
    }
    panic!("the schedule does not come to an end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_task_ends_once_within_every_quota(world in worlds()) {
        let seen = live(&world);
        prop_assert!((0..world.tasks.len()).all(|task| seen.ends.get(&task) == Some(&1)));
        for (tool, quota) in world.tools.iter().enumerate() {
            let of = |start: &&(u64, usize, usize)| world.tasks[start.1].0 == tool;
            prop_assert!(seen.starts.iter().filter(of).count() as u64 <= quota.calls_max);
        }
        let money: u64 = seen.starts.iter()
            .map(|start| world.tools[world.tasks[start.1].0].price_micros).sum();
        prop_assert!(world.budget.money_max_micros.is_none_or(|most| money <= most));
        prop_assert!(world.budget.calls_max.is_none_or(|most| seen.starts.len() as u64 <= most));
        for (task, (tool, _)) in world.tasks.iter().enumerate() {
            let calls = seen.starts.iter().filter(|start| start.1 == task).count();
            prop_assert!(calls <= world.tools[*tool].attempts_max as usize);
        }
    }

    #[test]
    fn no_window_of_time_has_more_calls_than_the_rate(world in worlds()) {
        let seen = live(&world);
        for resource in 0..world.resources {
            let users = world.tasks.iter().filter(|task| task.1 == resource);
            let limits: Vec<&Quota> = users.map(|task| &world.tools[task.0])
                .filter(|quota| quota.per_kilosecond.is_some()).collect();
            let Some(rate) = limits.iter().filter_map(|quota| quota.per_kilosecond).min() else {
                continue;
            };
            let burst = limits.iter().map(|quota| u64::from(quota.burst)).min().unwrap();
            let times: Vec<u64> = seen.starts.iter()
                .filter(|start| start.2 == resource).map(|start| start.0).collect();
            for (from, first) in times.iter().enumerate() {
                for (to, last) in times.iter().enumerate().skip(from) {
                    let calls = (to - from + 1) as u64 * 1_000_000_000;
                    prop_assert!(calls <= burst * 1_000_000_000 + rate * (last - first));
                }
            }
        }
    }

    #[test]
    fn the_same_world_goes_the_same_way(world in worlds()) {
        let (first, again) = (live(&world), live(&world));
        prop_assert_eq!(first.starts, again.starts);
        prop_assert_eq!((first.ends, first.read), (again.ends, again.read));
    }
}

fn quota() -> Quota {
    Quota {
        concurrency: 4,
        attempts_max: 4,
        ..Quota::default()
    }
}

/// A schedule with so many tasks on one resource.
fn one_resource(quota: Quota, tasks: usize) -> Schedule {
    let mut schedule = Schedule::new(ToolBudget::default(), 1);
    let tool = schedule.add_tool("t", quota);
    let resource = schedule.add_resource(tool, 0);
    for task in 0..tasks {
        let key = ContentHash::of_bytes(&task.to_le_bytes());
        schedule.add_task(tool, resource, key);
    }
    schedule
}

/// Starts all that may start now.
fn start_all(schedule: &mut Schedule, now: u64) -> Vec<u64> {
    let mut calls = Vec::new();
    while let Step::Start { call, .. } = schedule.next(now) {
        calls.push(call);
    }
    calls
}

#[test]
fn a_limited_resource_gets_fewer_calls_at_once_and_recovers() {
    let mut schedule = one_resource(quota(), 100);
    let calls = start_all(&mut schedule, 0);
    assert_eq!(calls.len(), 4);
    for call in calls {
        let limited = ToolError::RateLimited {
            message: String::new(),
            retry_after_ms: Some(1_000),
        };
        // Four answers to calls of one moment are one piece of news.
        assert_eq!(schedule.finish(call, Some(limited), 10), None);
    }
    assert!(start_all(&mut schedule, 999_999).is_empty());
    let mut now = 1_000_010;
    let mut widths = Vec::new();
    for _ in 0..6 {
        let calls = start_all(&mut schedule, now);
        widths.push(calls.len());
        now += 1_000_000;
        for call in calls {
            assert!(schedule.finish(call, None, now).is_some());
        }
    }
    assert_eq!(widths, [2, 3, 4, 4, 4, 4]);
}

#[test]
fn calls_that_never_return_keep_their_slots_and_the_rest_is_not_run() {
    let quota = Quota {
        concurrency: 2,
        attempts_max: 1,
        timeout_ms: 100,
        ..quota()
    };
    let mut schedule = one_resource(quota, 5);
    assert_eq!(start_all(&mut schedule, 0).len(), 2);
    let (mut now, mut ends) = (0, Vec::new());
    loop {
        match schedule.next(now) {
            Step::Wait { until_us } => now = until_us,
            Step::End { end, .. } => ends.push(end),
            Step::GiveUp { .. } => {}
            Step::Start { .. } => panic!("there is no slot"),
            Step::Done => break,
        }
    }
    let failed = |end: &&End| {
        matches!(
            end,
            End::Failed {
                error: ToolError::TimedOut { .. },
                ..
            }
        )
    };
    assert_eq!(ends.iter().filter(failed).count(), 2);
    let not_run = |end: &&End| matches!(end, End::NotRun(why) if why.contains("no slot"));
    assert_eq!(ends.iter().filter(not_run).count(), 3);
}

#[test]
fn a_wait_that_is_too_long_ends_the_request_and_all_that_wait_with_it() {
    let mut schedule = one_resource(quota(), 6);
    let calls = start_all(&mut schedule, 0);
    let limited = ToolError::RateLimited {
        message: String::new(),
        retry_after_ms: Some(3_600_000),
    };
    for call in calls {
        schedule.finish(call, Some(limited.clone()), 10);
    }
    let mut ends = Vec::new();
    while let Step::End { end, .. } = schedule.next(10) {
        ends.push(end);
    }
    let failed = End::Failed {
        error: limited,
        attempts: 1,
    };
    assert_eq!(ends.iter().filter(|end| **end == failed).count(), 4);
    let not_run = |end: &&End| matches!(end, End::NotRun(why) if why.contains("3600 s"));
    assert_eq!(ends.iter().filter(not_run).count(), 2);
    assert_eq!(schedule.next(10), Step::Done);
}
