//! Rows of a database that is only read.

use std::path::Path;

use engine::tools::open;
use operator::Plan;
use rusqlite::Connection;

use super::{ask, ask_one, body, failure, kind, plan};

fn reader(home: &Path, query: &str, more: &str) -> Plan {
    let tool = format!(
        "kind = \"sql\"\ndatabase = \"owners.sqlite\"\nquery = '''{query}'''\n\
         arguments = {{ key = {{ field = \"title\" }} }}\n{more}"
    );
    plan(home, &tool)
}

fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let database = Connection::open(home.path().join("owners.sqlite")).unwrap();
    database
        .execute_batch(
            "CREATE TABLE owners (component TEXT, team TEXT, size INTEGER);
             INSERT INTO owners VALUES ('gate', 'core', 4), ('gate', 'edge', 2), ('store', 'data', 7);",
        )
        .unwrap();
    home
}

const BY_COMPONENT: &str = "SELECT team, size FROM owners WHERE component = :key ORDER BY team";

#[test]
fn rows_come_as_objects_of_their_columns_and_values_are_bound_never_spliced() {
    let home = home();
    let plan = reader(home.path(), BY_COMPONENT, "");
    let (outcomes, _) = ask(&plan, &["gate", "nobody", "' OR 1=1 --"]);
    assert_eq!(
        body(&outcomes[0]),
        r#"[{"team":"core","size":4},{"team":"edge","size":2}]"#
    );
    assert_eq!(body(&outcomes[1]), "[]");
    assert_eq!(body(&outcomes[2]), "[]");
}

#[test]
fn statements_that_could_change_or_reach_anything_are_refused_before_the_run() {
    let home = home();
    for query in [
        "DELETE FROM owners WHERE component = :key",
        "UPDATE owners SET team = :key",
        "INSERT INTO owners VALUES (:key, 'x', 1)",
        "ATTACH DATABASE :key AS other",
        "PRAGMA table_info(:key)",
        "CREATE TABLE t AS SELECT :key",
        "SELECT load_extension(:key)",
        "SELECT team FROM owners WHERE component = :key; DROP TABLE owners",
        "SELECT team FROM nowhere WHERE component = :key",
        "SELECT team, team FROM owners WHERE component = :key",
        "SELECT team FROM owners WHERE component = :key AND size > ?2",
    ] {
        let plan = reader(home.path(), query, "");
        let refused = open(&plan, &[String::from("look")]);
        assert!(refused.is_err(), "{query}");
    }
    let database = Connection::open(home.path().join("owners.sqlite")).unwrap();
    let rows: u32 = database
        .query_row("SELECT COUNT(*) FROM owners", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 3);
}

#[test]
fn rows_and_bytes_over_the_limit_are_an_error_or_whole_rows_are_cut_off() {
    let home = home();
    let refused = ask_one(&reader(home.path(), BY_COMPONENT, "rows_max = 1\n"), "gate");
    assert_eq!(kind(&refused), "refused");
    assert!(failure(&refused).0.to_string().contains("rows_max"));
    let cut = "rows_max = 1\nover = \"cut\"\n";
    let cut = ask_one(&reader(home.path(), BY_COMPONENT, cut), "gate");
    assert_eq!(body(&cut), r#"[{"team":"core","size":4}]"#);
    let large = ask_one(
        &reader(home.path(), BY_COMPONENT, "bytes_max = 40\n"),
        "gate",
    );
    assert_eq!(kind(&large), "too_large");
    let cut = "bytes_max = 40\nover = \"cut\"\n";
    let cut = ask_one(&reader(home.path(), BY_COMPONENT, cut), "gate");
    assert_eq!(body(&cut), r#"[{"team":"core","size":4}]"#);
}

#[test]
fn a_query_that_never_ends_is_stopped_by_its_time_limit() {
    let home = home();
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                   SELECT COUNT(*) AS c FROM n WHERE :key <> ''";
    let plan = reader(home.path(), endless, "timeout_ms = 100\nattempts_max = 1\n");
    assert_eq!(kind(&ask_one(&plan, "x")), "timed_out");
}

#[test]
fn a_database_that_is_not_there_is_named() {
    let home = tempfile::tempdir().unwrap();
    let plan = reader(home.path(), BY_COMPONENT, "");
    let problem = open(&plan, &[String::from("look")])
        .unwrap_err()
        .to_string();
    assert!(problem.contains("owners.sqlite"), "{problem}");
}
