//! Files below a root, and nothing else.

use std::fs;
use std::path::Path;

use operator::Plan;

use super::{ask, ask_one, body, failure, kind, plan};

fn reader(home: &Path, more: &str) -> Plan {
    let tool = format!(
        "kind = \"file\"\nroot = \"inside\"\nfile = \"{{key}}\"\narguments = {{ key = {{ field = \"title\" }} }}\n{more}"
    );
    plan(home, &tool)
}

fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join("inside/deep")).unwrap();
    fs::write(home.path().join("secret.txt"), "keys").unwrap();
    fs::write(home.path().join("inside/a.txt"), "one line").unwrap();
    fs::write(home.path().join("inside/deep/b.json"), "[1]").unwrap();
    home
}

#[test]
fn files_below_the_root_are_read_whole() {
    let home = home();
    let plan = reader(home.path(), "");
    let (outcomes, usage) = ask(&plan, &["a.txt", "deep/b.json", "./a.txt"]);
    assert_eq!(body(&outcomes[0]), "one line");
    assert_eq!(body(&outcomes[1]), "[1]");
    assert_eq!(body(&outcomes[2]), "one line");
    assert_eq!(usage.bytes, 8 + 3 + 8);
}

#[test]
fn no_path_and_no_link_leads_out_of_the_root() {
    let home = home();
    let out = home.path().join("inside/out");
    std::os::unix::fs::symlink(home.path().join("secret.txt"), &out).unwrap();
    std::os::unix::fs::symlink(home.path(), home.path().join("inside/up")).unwrap();
    let plan = reader(home.path(), "");
    let absolute = home.path().join("secret.txt").display().to_string();
    for path in [
        "../secret.txt",
        "deep/../../secret.txt",
        &*absolute,
        "",
        "..",
    ] {
        let outcome = ask_one(&plan, path);
        assert_eq!(kind(&outcome), "denied", "{path:?}");
    }
    for path in ["out", "up/secret.txt"] {
        let outcome = ask_one(&plan, path);
        assert!(
            matches!(kind(&outcome), "denied" | "refused"),
            "{outcome:?}"
        );
    }
}

#[test]
fn what_is_no_regular_file_is_refused_and_does_not_hold_the_call() {
    let home = home();
    let pipe = home.path().join("inside/pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let plan = reader(home.path(), "");
    for path in ["pipe", "deep"] {
        let outcome = ask_one(&plan, path);
        let (error, attempts) = failure(&outcome);
        assert_eq!((error.as_str(), attempts), ("refused", 1), "{path}");
        assert!(error.to_string().contains("no regular file"), "{error}");
    }
}

#[test]
fn a_file_over_the_limit_is_an_error_or_cut_at_a_character() {
    let home = home();
    fs::write(home.path().join("inside/long.txt"), "äöü").unwrap();
    let refused = ask_one(&reader(home.path(), "bytes_max = 5\n"), "long.txt");
    assert_eq!(kind(&refused), "too_large");
    let cut = ask_one(
        &reader(home.path(), "bytes_max = 5\nover = \"cut\"\n"),
        "long.txt",
    );
    assert_eq!(body(&cut), "äö");
    let whole = ask_one(&reader(home.path(), "bytes_max = 6\n"), "long.txt");
    assert_eq!(body(&whole), "äöü");
}

#[test]
fn a_file_that_is_not_there_is_an_error_or_empty_as_the_plan_says() {
    let home = home();
    for more in ["", "missing = \"error\"\n"] {
        let outcome = ask_one(&reader(home.path(), more), "none.txt");
        let (error, attempts) = failure(&outcome);
        assert_eq!((error.as_str(), attempts), ("refused", 1));
        assert!(error.to_string().contains("none.txt"), "{error}");
    }
    let lenient = reader(home.path(), "missing = \"empty\"\n");
    assert_eq!(body(&ask_one(&lenient, "none.txt")), "");
    assert_eq!(body(&ask_one(&lenient, "a.txt")), "one line");
    // Only absence is empty; what must not be read stays an error.
    assert_eq!(kind(&ask_one(&lenient, "../secret.txt")), "denied");
    let strict = reader(home.path(), "");
    assert_ne!(
        strict.tools[0].declaration(),
        lenient.tools[0].declaration()
    );
}

#[test]
fn another_word_for_a_missing_file_is_refused_with_the_two_that_there_are() {
    let home = home();
    let text = "kind = \"file\"\nroot = \".\"\nfile = \"a\"\nmissing = \"emtpy\"";
    let problem = std::panic::catch_unwind(|| plan(home.path(), text)).unwrap_err();
    let problem = problem.downcast_ref::<String>().unwrap();
    assert!(problem.contains("empty"), "{problem}");
}
