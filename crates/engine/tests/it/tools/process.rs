//! What programs write: fixed arguments, no shell, and an end to them.

use std::path::Path;

use operator::Plan;

use super::{ask_one, body, failure, kind, plan};

fn runner(home: &Path, program: &str, args: &str, more: &str) -> Plan {
    let tool = format!(
        "kind = \"process\"\nprogram = \"{program}\"\nargs = {args}\ndirectory = \".\"\n\
         arguments = {{ key = {{ field = \"title\" }} }}\n{more}"
    );
    plan(home, &tool)
}

#[test]
fn an_argument_is_one_argument_whatever_it_contains() {
    let home = tempfile::tempdir().unwrap();
    let plan = runner(home.path(), "printf", r#"["<%s>", "{key}", "end"]"#, "");
    for value in ["a b", "$(id)", "`id`; ls", "*", "\"q\" 'r'", "&& echo"] {
        let outcome = ask_one(&plan, value);
        assert_eq!(body(&outcome), format!("<{value}><end>"));
    }
    // A value must not become an option, unless the plan has said that options are over.
    assert_eq!(kind(&ask_one(&plan, "-n")), "denied");
    let closed = runner(home.path(), "printf", r#"["--", "<%s>", "{key}"]"#, "");
    assert_eq!(body(&ask_one(&closed, "-n")), "<-n>");
}

#[test]
fn a_program_sees_no_environment_and_no_input_but_what_is_declared() {
    let home = tempfile::tempdir().unwrap();
    let script =
        r#"["-c", "cat; env | sort | cut -d= -f1 | grep -v -e ^PWD -e ^SHLVL -e ^_; echo {key}"]"#;
    let bare = runner(
        home.path(),
        "/bin/sh",
        script,
        "attempts_max = 1\nenv = [\"PATH\"]\n",
    );
    let outcome = ask_one(&bare, "done");
    assert_eq!(body(&outcome), "PATH\ndone\n");
}

#[test]
fn a_program_that_does_not_end_is_ended_with_its_children() {
    let home = tempfile::tempdir().unwrap();
    let mark = home.path().join("late");
    // The child would write after the parent's time is over.
    let script = format!(
        r#"["-c", "(sleep 2; echo {{key}} > {}) & sleep 60"]"#,
        mark.display()
    );
    let more = "timeout_ms = 200\nattempts_max = 1\nenv = [\"PATH\"]\n";
    let plan = runner(home.path(), "/bin/sh", &script, more);
    assert_eq!(kind(&ask_one(&plan, "x")), "timed_out");
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    assert!(!mark.exists(), "a child went on");
}

#[test]
fn a_failure_quotes_what_the_program_said_and_too_much_output_is_an_error_or_cut() {
    let home = tempfile::tempdir().unwrap();
    let script = r#"["-c", "echo no such thing: {key} >&2; exit 3"]"#;
    let plan = runner(home.path(), "/bin/sh", script, "");
    let outcome = ask_one(&plan, "it");
    let (error, attempts) = failure(&outcome);
    assert_eq!((error.as_str(), attempts), ("refused", 1));
    let said = error.to_string();
    assert!(
        said.contains("no such thing: it") && said.contains('3'),
        "{said}"
    );

    let endless = r#"["-c", "while :; do echo {key}; done"]"#;
    let more = "bytes_max = 6\ntimeout_ms = 20_000\nattempts_max = 1\n";
    let plan = runner(home.path(), "/bin/sh", endless, more);
    assert_eq!(kind(&ask_one(&plan, "ab")), "too_large");
    let plan = runner(
        home.path(),
        "/bin/sh",
        endless,
        &format!("{more}over = \"cut\"\n"),
    );
    assert_eq!(body(&ask_one(&plan, "ab")), "ab\nab\n");
}

#[test]
fn a_program_that_is_not_there_is_named_before_the_run() {
    let home = tempfile::tempdir().unwrap();
    let plan = runner(home.path(), "no-such-program-here", r#"["{key}"]"#, "");
    let problem = engine::tools::open(&plan, &[String::from("look")]);
    let problem = problem.unwrap_err().to_string();
    assert!(problem.contains("no-such-program-here"), "{problem}");
}
