//! Tools as plans declare them: what is refused, where, and what is part of a plan's meaning.

use operator::Plan;
use operator::plan::{ToolKind, ToolSpec};
use operator::tool::{ArgumentKind, Capability, Over};

use super::PLAN;

const HTTP: &str = r#"
[[tool]]
name = "comments"
kind = "http"
url = "https://api.example.org/issues/{number}/comments?of={who}"
hosts = ["CDN.example.org"]
headers = { Accept = "application/json" }
headers_env = { Authorization = "EXAMPLE_AUTH" }
arguments = { number = { field = "issue.number", type = "integer" }, who = { field = "author" } }
concurrency = 2
per_second = 0.5
burst = 3
calls_max = 900
attempts_max = 5
timeout_ms = 2_000
backoff_ms = 100
wait_max_ms = 30_000
bytes_max = 1_000
over = "cut"
max_age = 60
price_micros = 7
"#;

const OTHERS: &str = r#"
[[tool]]
name = "source"
kind = "file"
root = "src"
file = "{path}"
arguments = { path = { field = "path" } }

[[tool]]
name = "owner"
kind = "sql"
database = "owners.sqlite"
query = "SELECT team FROM owners WHERE component = :component"
arguments = { component = { field = "component" } }

[[tool]]
name = "history"
kind = "process"
program = "git"
args = ["log", "--", "{path}"]
env = ["PATH"]
arguments = { path = { field = "path" } }

[[tool]]
name = "docs"
kind = "mcp"
command = ["docs-server"]
call = "search"
read_only = true
constants = { limit = 5 }
arguments = { query = { field = "title" } }
"#;

fn parse(tools: &str) -> Result<Plan, String> {
    Plan::parse(&format!("{PLAN}{tools}"), "plan.toml").map_err(|error| error.to_string())
}

fn http() -> ToolSpec {
    parse(HTTP).unwrap().tools.remove(0)
}

/// The HTTP tool with one piece of its text replaced, which must occur.
fn changed(from: &str, to: &str) -> Result<ToolSpec, String> {
    assert!(HTTP.contains(from), "{from}");
    Ok(parse(&HTTP.replacen(from, to, 1))?.tools.remove(0))
}

#[test]
fn a_tool_of_every_kind_is_read_as_it_is_written() {
    let spec = http();
    let ToolKind::Http(http) = &spec.kind else {
        panic!("{spec:?}")
    };
    assert_eq!(http.host, "api.example.org");
    assert_eq!(http.hosts, ["api.example.org", "cdn.example.org"]);
    assert_eq!(http.headers["accept"], "application/json");
    assert_eq!(http.headers_env["authorization"], "EXAMPLE_AUTH");
    assert_eq!(spec.arguments[0].field, "issue.number");
    assert_eq!(spec.arguments[0].kind, ArgumentKind::Integer);
    assert_eq!(spec.arguments[1].kind, ArgumentKind::Text);
    let quota = spec.quota;
    assert_eq!(
        (quota.per_kilosecond, quota.burst, quota.concurrency),
        (Some(500), 3, 2)
    );
    assert_eq!(
        (quota.calls_max, quota.attempts_max, quota.timeout_ms),
        (900, 5, 2_000)
    );
    assert_eq!((quota.backoff_ms, quota.wait_max_ms), (100, 30_000));
    assert_eq!(
        (quota.bytes_max, quota.over, quota.price_micros),
        (1_000, Over::Cut, 7)
    );
    assert_eq!(spec.max_age_s, 60);
    let others = parse(OTHERS).unwrap().tools;
    let kinds: Vec<&str> = others.iter().map(|tool| tool.kind.as_str()).collect();
    assert_eq!(kinds, ["file", "sql", "process", "mcp"]);
    assert_eq!(others[0].quota.attempts_max, 3, "quotas have defaults");
}

#[test]
fn what_is_wrong_with_a_tool_is_named_with_its_cure() {
    for (from, to, parts) in [
        (
            "kind = \"http\"",
            "kind = \"htp\"",
            &["unknown kind", "did you mean \"http\""][..],
        ),
        (
            "hosts = [",
            "rows_max = 5 #",
            &["has no key rows_max", "headers_env"],
        ),
        (
            "url = \"https://api.example.org/issues/{number}",
            "url = \"{number}",
            &["https://"],
        ),
        (
            "api.example.org/issues/{number}",
            "{number}.example.org/",
            &["in its host"],
        ),
        (
            "api.example.org/",
            "me@api.example.org/",
            &["user name", "headers_env"],
        ),
        (
            "{number}/",
            "{numbr}/",
            &["\"numbr\" is not a declared", "did you mean \"number\""],
        ),
        ("?of={who}", "", &["\"who\" is never used"]),
        ("{number}/", "{number}}/", &["single \"}\""]),
        (
            "concurrency = 2",
            "concurrency = 0",
            &["concurrency is 0", "from 1 to 256"],
        ),
        (
            "per_second = 0.5",
            "per_second = 0.0",
            &["per_second must be"],
        ),
        ("per_second = 0.5", "", &["burst without per_second"]),
        ("timeout_ms = 2_000", "timeout_ms = 0", &["timeout_ms is 0"]),
        (
            "name = \"comments\"",
            "name = \"Comments\"",
            &["lower-case"],
        ),
        ("\"CDN.example.org\"", "\"*.example.org\"", &["is no host"]),
        (
            "hosts = [",
            "private_hosts = [\"10.0.0.1\"] #",
            &["not among the hosts"],
        ),
        (
            "type = \"integer\"",
            "type = \"number\"",
            &["number", "integer"],
        ),
        (
            "over = \"cut\"",
            "over = \"cut\"\nretries = 2",
            &["unknown field `retries`"],
        ),
    ] {
        let problem = changed(from, to).unwrap_err();
        assert!(problem.starts_with("plan.toml:"), "{problem}");
        for part in parts {
            assert!(problem.contains(part), "{from} -> {to}: {problem}");
        }
    }
    for (from, to, part) in [
        (
            ":component",
            ":componnt",
            "\"componnt\" is not a declared argument",
        ),
        ("read_only = true", "read_only = false", "[[effect]]"),
        (
            "constants = { limit = 5 }",
            "constants = { query = 5 }",
            "both an argument and a constant",
        ),
        (
            "command = [\"docs-server\"]",
            "command = []",
            "command is empty",
        ),
        ("root = \"src\"\n", "", "needs root"),
        (
            "name = \"owner\"",
            "name = \"source\"",
            "two tools are named",
        ),
    ] {
        assert!(OTHERS.contains(from), "{from}");
        let problem = parse(&OTHERS.replacen(from, to, 1)).unwrap_err();
        assert!(problem.contains(part), "{from} -> {to}: {problem}");
    }
}

#[test]
fn a_declaration_names_what_is_read_and_not_how_fast() {
    let (plan, declared) = (parse(HTTP).unwrap().hash(), http().declaration());
    for (from, to) in [
        ("name = \"comments\"", "name = \"replies\""),
        ("concurrency = 2", "concurrency = 3"),
        ("per_second = 0.5", "per_second = 5"),
        ("attempts_max = 5", "attempts_max = 1"),
        ("max_age = 60", "max_age = 0"),
        ("issue.number", "number"),
    ] {
        assert_eq!(changed(from, to).unwrap().declaration(), declared, "{from}");
    }
    for (from, to) in [
        ("/comments", "/events"),
        ("CDN.example.org", "cdn2.example.org"),
        ("application/json", "text/plain"),
        ("EXAMPLE_AUTH", "OTHER_AUTH"),
        ("bytes_max = 1_000", "bytes_max = 1_001"),
        ("over = \"cut\"", "over = \"error\""),
        (", type = \"integer\"", ""),
    ] {
        assert_ne!(changed(from, to).unwrap().declaration(), declared, "{from}");
        let other = parse(&HTTP.replacen(from, to, 1)).unwrap();
        assert_ne!(other.hash(), plan, "{from}");
    }
    let moved = parse(&HTTP.replacen("issue.number", "number", 1)).unwrap();
    assert_ne!(
        moved.hash(),
        plan,
        "which field an argument comes from is the plan's meaning"
    );
    let faster = parse(&HTTP.replacen("concurrency = 2", "concurrency = 9", 1)).unwrap();
    assert_eq!(faster.hash(), plan);
    assert_ne!(parse("").unwrap().hash(), plan);
}

#[test]
fn a_tool_that_was_not_allowed_by_name_gives_no_permission() {
    let spec = http();
    assert!(Capability::grant(&spec, &["comments".to_owned()]).is_ok());
    for allowed in [vec![], vec!["comment".to_owned()], vec!["*".to_owned()]] {
        let problem = Capability::grant(&spec, &allowed).unwrap_err().to_string();
        for part in ["denied", "api.example.org", "--allow comments"] {
            assert!(problem.contains(part), "{problem}");
        }
    }
}
