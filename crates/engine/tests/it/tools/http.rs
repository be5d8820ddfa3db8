//! Resources of allowed hosts, and nothing else.

use std::path::Path;
use std::time::Duration;

use engine::tools::open;
use operator::Plan;
use operator::tool::ToolError;

use super::server::{Answer, Server};
use super::{ask, ask_one, body, failure, kind, plan};

fn reader(url: &str, more: &str) -> Plan {
    let tool = format!(
        "kind = \"http\"\nurl = \"{url}\"\nprivate_hosts = [\"127.0.0.1\"]\nbackoff_ms = 1\n\
         arguments = {{ key = {{ field = \"title\" }} }}\n{more}"
    );
    plan(Path::new("."), &tool)
}

#[test]
fn an_argument_fills_one_part_of_the_address_and_no_other() {
    let server = Server::start(|path, _| Answer::ok(path));
    let plan = reader(&format!("http://{}/issues/{{key}}?x=1", server.address), "");
    for (value, path) in [
        ("7", "/issues/7?x=1"),
        ("a b/c", "/issues/a%20b%2Fc?x=1"),
        ("?y=2#z", "/issues/%3Fy%3D2%23z?x=1"),
        ("ä@host", "/issues/%C3%A4%40host?x=1"),
        ("%2e%2e", "/issues/%252e%252e?x=1"),
    ] {
        assert_eq!(body(&ask_one(&plan, value)), path, "{value}");
    }
    for value in ["..", "."] {
        assert_eq!(kind(&ask_one(&plan, value)), "denied", "{value}");
    }
}

#[test]
fn a_private_address_is_reached_only_where_the_plan_expects_one() {
    let server = Server::start(|_, _| Answer::ok("inside"));
    let tool = format!(
        "kind = \"http\"\nurl = \"http://{}/{{key}}\"\nattempts_max = 1\n\
         arguments = {{ key = {{ field = \"title\" }} }}",
        server.address
    );
    let outcome = ask_one(&plan(Path::new("."), &tool), "x");
    assert_eq!(kind(&outcome), "denied");
    assert!(failure(&outcome).0.to_string().contains("private_hosts"));
    assert_eq!(server.requests(), 0);
}

#[test]
fn a_redirect_is_followed_below_the_allowed_hosts_and_never_beyond() {
    let server = Server::start(|path, _| match path {
        "/there" => Answer::ok("arrived"),
        "/near" => Answer::Reply(302, vec![("location", "/there".into())], String::new()),
        "/round" => Answer::Reply(301, vec![("location", "/round".into())], String::new()),
        _ => Answer::Reply(
            302,
            vec![("location", "http://example.org/".into())],
            String::new(),
        ),
    });
    let plan = reader(&format!("http://{}/{{key}}", server.address), "");
    assert_eq!(body(&ask_one(&plan, "near")), "arrived");
    assert_eq!(kind(&ask_one(&plan, "far")), "denied");
    assert_eq!(kind(&ask_one(&plan, "round")), "refused");
}

#[test]
fn what_may_pass_is_tried_again_so_often_and_what_will_not_is_not() {
    let server = Server::start(|path, before| match (path, before) {
        ("/busy", 0) | ("/broken", 0 | 1) | ("/shut", 0) => match path {
            "/busy" => Answer::status(429),
            "/broken" => Answer::status(503),
            _ => Answer::Close,
        },
        ("/always", _) => Answer::status(500),
        ("/none", _) => Answer::status(404),
        ("/secret", _) => Answer::status(401),
        _ => Answer::ok("at last"),
    });
    let plan = reader(
        &format!("http://{}/{{key}}", server.address),
        "attempts_max = 3\n",
    );
    let keys = ["busy", "broken", "shut", "always", "none", "secret"];
    let (outcomes, usage) = ask(&plan, &keys);
    for outcome in &outcomes[..3] {
        assert_eq!(body(outcome), "at last");
    }
    let (error, attempts) = failure(&outcomes[3]);
    assert_eq!((error.as_str(), attempts), ("unavailable", 3));
    for outcome in &outcomes[4..] {
        let (error, attempts) = failure(outcome);
        assert_eq!((error.as_str(), attempts), ("refused", 1));
    }
    let seen = server.seen().paths;
    let asked = |path: &str| seen[path];
    assert_eq!(
        (asked("/busy"), asked("/broken"), asked("/always")),
        (2, 3, 3)
    );
    assert_eq!((asked("/none"), asked("/secret")), (1, 1));
    assert_eq!(usage.calls, server.requests() as u64);
}

#[test]
fn a_retry_after_is_waited_for_and_one_that_is_too_far_off_ends_the_call() {
    let server = Server::start(|path, before| match (path, before) {
        ("/soon", 0) => Answer::Reply(429, vec![("retry-after", "1".into())], String::new()),
        ("/late", _) => Answer::Reply(429, vec![("retry-after", "3600".into())], String::new()),
        _ => Answer::ok("now"),
    });
    let url = format!("http://{}/{{key}}", server.address);
    let plan = reader(&url, "wait_max_ms = 5_000\n");
    assert_eq!(body(&ask_one(&plan, "soon")), "now");
    let arrivals = server.seen().arrivals;
    assert!(arrivals[1] - arrivals[0] >= Duration::from_millis(990));
    let outcome = ask_one(&plan, "late");
    let (error, attempts) = failure(&outcome);
    assert!(matches!(error, ToolError::RateLimited { .. }), "{error}");
    assert_eq!(attempts, 1);
}

#[test]
fn a_reply_that_does_not_come_times_out_and_one_that_is_too_long_is_refused_or_cut() {
    let server = Server::start(|path, _| match path {
        "/hang" => Answer::Hang(Duration::ZERO),
        _ => Answer::ok("0123456789"),
    });
    let url = format!("http://{}/{{key}}", server.address);
    let plan = reader(&url, "timeout_ms = 200\nattempts_max = 2\n");
    let outcome = ask_one(&plan, "hang");
    let (error, attempts) = failure(&outcome);
    assert_eq!((error.as_str(), attempts), ("timed_out", 2));
    let outcome = ask_one(&reader(&url, "bytes_max = 4\n"), "long");
    assert_eq!(kind(&outcome), "too_large");
    let outcome = ask_one(&reader(&url, "bytes_max = 4\nover = \"cut\"\n"), "long");
    assert_eq!(body(&outcome), "0123");
}

#[test]
fn headers_are_sent_and_a_secret_without_its_variable_is_named_before_the_run() {
    let server = Server::start(|_, _| Answer::ok("x"));
    let url = format!("http://{}/{{key}}", server.address);
    let plan = reader(&url, "headers = { accept = \"application/json\" }\n");
    ask_one(&plan, "a");
    let headers = server.seen().headers;
    assert!(
        headers.contains(&String::from("accept: application/json")),
        "{headers:?}"
    );
    let missing = "headers_env = { authorization = \"NO_SUCH_VARIABLE_HERE\" }\n";
    let problem = open(&reader(&url, missing), &[String::from("look")]).unwrap_err();
    assert!(
        problem.to_string().contains("NO_SUCH_VARIABLE_HERE"),
        "{problem}"
    );
}
