//! Columns, the fold section and reductions of a plan: what is read, what is refused, and how.

use operator::Plan;
use operator::column::{Column, ColumnType};
use operator::plan::{
    ColumnRef, FoldKey, FoldSettings, JoinKind, JoinSide, KeySource, Measure, Operation, Order,
};

use super::{PLAN, plan};

/// Columns of every type; what comes after them starts on line 47.
const COLUMNS: &str = r#"
[[column]]
name = "comments"
field = "comments.count"
type = "integer"

[[column]]
name = "component"
type = "text"

[[column]]
name = "opened"
field = "createdAt"
type = "time"
"#;

fn with(text: &str) -> Result<Plan, String> {
    Plan::parse(&format!("{PLAN}{COLUMNS}{text}"), "plan.toml").map_err(|error| error.to_string())
}

/// The plan with one more reduction, whose keys from `op` on start on line 49.
fn reduction(keys: &str) -> Result<Plan, String> {
    with(&format!("[[reduce]]\nname = \"r\"\n{keys}\n"))
}

fn op(keys: &str) -> Operation {
    let plan = reduction(keys).unwrap_or_else(|error| panic!("{keys}: {error}"));
    plan.reduces[1].op.clone()
}

fn refused(keys: &str, place: &str, parts: &[&str]) {
    let error = reduction(keys).map(|plan| plan.reduces).unwrap_err();
    assert!(
        error.starts_with(&format!("plan.toml:{place}: ")),
        "{keys}: {error}"
    );
    for part in parts {
        assert!(error.contains(part), "{keys}: {error} lacks {part}");
    }
}

fn column(name: &str, kind: ColumnType) -> ColumnRef {
    let name = name.to_owned();
    ColumnRef { name, kind }
}

fn comments() -> ColumnRef {
    column("comments", ColumnType::Integer)
}

fn component() -> KeySource {
    KeySource::Column(column("component", ColumnType::Text))
}

fn opened() -> ColumnRef {
    column("opened", ColumnType::Time)
}

fn label(field: &str) -> KeySource {
    KeySource::Label(field.to_owned())
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn columns_are_read_with_the_name_as_default_path() {
    let plan = with("").unwrap();
    let expected = [
        ("comments", "comments.count", ColumnType::Integer),
        ("component", "component", ColumnType::Text),
        ("opened", "createdAt", ColumnType::Time),
    ]
    .map(|(name, field, kind)| Column {
        name: name.to_owned(),
        field: field.to_owned(),
        kind,
    });
    assert_eq!(plan.columns, expected);
    assert_eq!(plan.column("opened"), Some(&expected[2]));
    assert_eq!(plan.column("blocker"), None);
}

#[test]
fn bad_columns_are_refused() {
    for (from, to, place, parts) in [
        (
            "name = \"component\"",
            "name = \"Component\"",
            "39:1",
            &["column name \"Component\" must be lower-case letters"][..],
        ),
        (
            "name = \"component\"",
            "name = \"evidence\"",
            "39:1",
            &["column name \"evidence\" is reserved"],
        ),
        (
            "name = \"component\"",
            "name = \"id\"",
            "39:1",
            &["column name \"id\" is reserved"],
        ),
        (
            "name = \"component\"",
            "name = \"blocker\"",
            "39:1",
            &[
                "column \"blocker\" has the name of a [[field]]",
                "rename one",
            ],
        ),
        (
            "name = \"component\"",
            "name = \"comments\"",
            "39:1",
            &["two columns are named \"comments\""],
        ),
        (
            "field = \"createdAt\"",
            "field = \"\"",
            "43:1",
            &["column \"opened\" has an empty field"],
        ),
        (
            "type = \"time\"",
            "type = \"times\"",
            "46:8",
            &["unknown variant `times`", "did you mean `time`?"],
        ),
        ("type = \"time\"", "", "43:1", &["missing field `type`"]),
        (
            "type = \"time\"",
            "typ = \"time\"",
            "46:1",
            &["unknown field `typ`", "did you mean `type`?"],
        ),
    ] {
        assert!(COLUMNS.contains(from), "{from}");
        let text = format!("{PLAN}{}", COLUMNS.replacen(from, to, 1));
        let error = Plan::parse(&text, "plan.toml").unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("plan.toml:{place}: ")),
            "{to}: {error}"
        );
        for part in parts {
            assert!(error.contains(part), "{to}: {error} lacks {part}");
        }
    }
    let field = PLAN.replace("name = \"cause\"", "name = \"id\"");
    let error = Plan::parse(&field, "plan.toml").unwrap_err().to_string();
    assert!(error.contains("field name \"id\" is reserved"), "{error}");
}

#[test]
fn the_fold_section_has_defaults_and_limits() {
    let default = FoldSettings {
        fan_in: 8,
        key: FoldKey::Id,
        outliers_max: 64,
    };
    assert_eq!(plan().fold, default);
    assert_eq!(with("[fold]\n").unwrap().fold, default);
    let given = with("[fold]\nfan_in = 64\nkey = \"ordinal\"\noutliers_max = 4096\n").unwrap();
    let expected = FoldSettings {
        fan_in: 64,
        key: FoldKey::Ordinal,
        outliers_max: 4_096,
    };
    assert_eq!(given.fold, expected);
    for (keys, place, part) in [
        (
            "fan_in = 1",
            "48:10",
            "fold: fan_in is 1; it must be from 2 to 64",
        ),
        (
            "fan_in = 65",
            "48:10",
            "fold: fan_in is 65; it must be from 2 to 64",
        ),
        (
            "outliers_max = 0",
            "48:16",
            "fold: outliers_max is 0; it must be from 1 to 4096",
        ),
        ("outliers_max = 4097", "48:16", "it must be from 1 to 4096"),
        ("key = \"ids\"", "48:7", "did you mean `id`?"),
        ("fanin = 3", "48:1", "did you mean `fan_in`?"),
    ] {
        let error = with(&format!("[fold]\n{keys}\n")).unwrap_err();
        assert!(
            error.starts_with(&format!("plan.toml:{place}: ")),
            "{keys}: {error}"
        );
        assert!(error.contains(part), "{keys}: {error}");
    }
}

#[test]
fn operations_over_keys_carry_what_a_reducer_needs() {
    assert_eq!(
        op("op = \"count_by\"\nfield = \"blocker\""),
        Operation::CountBy {
            key: label("blocker"),
            labels: texts(&["yes", "no"]),
            keys_max: 4_096
        }
    );
    assert_eq!(
        op("op = \"count_by\"\nfield = \"component\"\nkeys_max = 9"),
        Operation::CountBy {
            key: component(),
            labels: Vec::new(),
            keys_max: 9
        }
    );
    assert_eq!(
        op("op = \"set\""),
        Operation::Set {
            key: None,
            keys_max: 4_096
        }
    );
    assert_eq!(
        op("op = \"set\"\nfield = \"component\"\nkeys_max = 65536"),
        Operation::Set {
            key: Some(component()),
            keys_max: 65_536
        }
    );
    assert_eq!(
        op("op = \"top_keys\"\nfield = \"component\"\nk = 3"),
        Operation::TopKeys {
            key: component(),
            k: 3,
            keys_max: 4_096
        }
    );
    assert_eq!(
        op("op = \"heavy_hitters\"\nfield = \"component\"\nk = 4096"),
        Operation::HeavyHitters {
            key: component(),
            k: 4_096
        }
    );
    assert_eq!(
        op("op = \"heavy_hitters\"\nfield = \"cause\"\nk = 1"),
        Operation::HeavyHitters {
            key: label("cause"),
            k: 1
        }
    );
    assert_eq!(
        op("op = \"distinct\"\nfield = \"component\""),
        Operation::Distinct(column("component", ColumnType::Text))
    );
}

#[test]
fn operations_over_numbers_carry_what_a_reducer_needs() {
    for (keys, expected) in [
        ("op = \"min\"\nfield = \"opened\"", Operation::Min(opened())),
        (
            "op = \"max\"\nfield = \"comments\"",
            Operation::Max(comments()),
        ),
        (
            "op = \"sum\"\nfield = \"comments\"",
            Operation::Sum(comments()),
        ),
        (
            "op = \"mean\"\nfield = \"comments\"",
            Operation::Mean(comments()),
        ),
        (
            "op = \"distinct\"\nfield = \"opened\"",
            Operation::Distinct(opened()),
        ),
        (
            "op = \"quantiles\"\nfield = \"opened\"\nat = [0, 50, 100]",
            Operation::Quantiles {
                column: opened(),
                at: vec![0, 50, 100],
            },
        ),
        (
            "op = \"top_k\"\nfield = \"comments\"\nk = 5",
            Operation::TopK {
                by: Measure::Column(comments()),
                k: 5,
                order: Order::Largest,
            },
        ),
        (
            "op = \"top_k\"\nfield = \"opened\"\nk = 5\norder = \"smallest\"",
            Operation::TopK {
                by: Measure::Column(opened()),
                k: 5,
                order: Order::Smallest,
            },
        ),
        (
            "op = \"top_k\"\nfield = \"blocker\"\nlabel = \"no\"\nk = 5",
            Operation::TopK {
                by: Measure::Probability {
                    field: "blocker".to_owned(),
                    label: Some("no".to_owned()),
                },
                k: 5,
                order: Order::Largest,
            },
        ),
        (
            "op = \"histogram\"\nfield = \"comments\"\nedges = [-1, 0, 200]",
            Operation::Histogram {
                by: Measure::Column(comments()),
                edges: vec![-1, 0, 200],
            },
        ),
        (
            "op = \"histogram\"\nfield = \"blocker\"\nedges = [10, 90]",
            Operation::Histogram {
                by: Measure::Probability {
                    field: "blocker".to_owned(),
                    label: None,
                },
                edges: vec![100_000, 900_000],
            },
        ),
    ] {
        assert_eq!(op(keys), expected, "{keys}");
    }
}

#[test]
fn operations_over_several_names_carry_what_a_reducer_needs() {
    let join = "op = \"join\"\nkind = \"anti\"\nright = { key = \"component\" }\n\
                left = { where = { blocker = \"yes\", component = \"api\" }, key = \"id\" }";
    let Operation::Join { left, right, kind } = op(join) else {
        panic!("no join");
    };
    assert_eq!((left.key, kind), (KeySource::Id, JoinKind::Anti));
    assert_eq!(left.filter.labels["blocker"], "yes");
    assert_eq!(left.filter.columns["component"], "api");
    assert_eq!(
        right,
        JoinSide {
            filter: Default::default(),
            key: component()
        }
    );
    let by_label = "op = \"join\"\nkind = \"inner\"\nleft = { key = \"cause\" }\n\
                    right = { key = \"component\" }";
    assert!(matches!(op(by_label), Operation::Join { .. }));
    let clusters = "op = \"clusters\"\nfield = \"cause\"\ntaxonomy = \" v1 \"\n";
    let plain = Operation::Clusters {
        field: "cause".to_owned(),
        labels: texts(&["clock", "none"]),
        taxonomy: "v1".to_owned(),
        exemplars: 2,
        unclustered: None,
        dissent: Vec::new(),
    };
    assert_eq!(op(clusters), plain);
    let Operation::Clusters {
        exemplars,
        unclustered,
        dissent,
        ..
    } = op(&format!(
        "{clusters}exemplars = 16\nunclustered = \"none\"\ndissent = []"
    ))
    else {
        panic!("no clusters");
    };
    assert_eq!(
        (exemplars, unclustered.as_deref(), dissent),
        (16, Some("none"), Vec::new())
    );
    let Operation::Clusters { dissent, .. } = op(&format!("{clusters}dissent = [\"none\"]")) else {
        panic!("no clusters");
    };
    assert_eq!(dissent, ["none"]);
    assert_eq!(
        op("op = \"summary\"\nof = [\"blockers\"]\ninstruction = \" Be brief. \""),
        Operation::Summary {
            of: texts(&["blockers"]),
            instruction: "Be brief.".to_owned(),
            tokens_max: 160
        }
    );
}

#[test]
fn where_takes_labels_and_exact_texts() {
    let plan = reduction("op = \"count\"\nwhere = { component = 17, cause = \"clock\" }").unwrap();
    let filter = &plan.reduces[1].filter;
    assert_eq!(filter.columns["component"], "17");
    assert_eq!(filter.labels["cause"], "clock");
    assert!(!filter.is_empty());
    assert!(
        reduction("op = \"count\"").unwrap().reduces[1]
            .filter
            .is_empty()
    );
    refused(
        "op = \"count\"\nwhere = { opened = \"2026-01-01\" }",
        "50:20",
        &[
            "where of reduce \"r\"",
            "column \"opened\" of type \"time\" has no text to compare",
            "name a field or a text column",
        ],
    );
    refused(
        "op = \"count\"\nwhere = { componet = \"api\" }",
        "50:22",
        &[
            "unknown field or column \"componet\"",
            "did you mean \"component\"?",
        ],
    );
}

#[test]
fn a_key_that_an_operation_does_not_have_is_refused_where_it_stands() {
    refused(
        "op = \"cuont\"",
        "49:6",
        &["unknown op \"cuont\"", "did you mean \"count\"?"],
    );
    for (keys, key, place) in [
        ("op = \"count\"\nfield = \"cause\"", "field", "50:9"),
        ("op = \"min\"\nlabel = \"yes\"", "label", "50:9"),
        ("op = \"set\"\nk = 1", "k", "50:5"),
        ("op = \"min\"\nedges = [1]", "edges", "50:9"),
        ("op = \"top_keys\"\norder = \"largest\"", "order", "50:9"),
        ("op = \"histogram\"\nat = [1]", "at", "50:6"),
        ("op = \"top_k\"\nkeys_max = 1", "keys_max", "50:12"),
        ("op = \"count\"\nleft = { key = \"id\" }", "left", "50:8"),
        ("op = \"count\"\nright = { key = \"id\" }", "right", "50:9"),
        ("op = \"count\"\nkind = \"inner\"", "kind", "50:8"),
        ("op = \"count\"\nexemplars = 1", "exemplars", "50:13"),
        (
            "op = \"count\"\nunclustered = \"none\"",
            "unclustered",
            "50:15",
        ),
        ("op = \"count\"\ndissent = [\"none\"]", "dissent", "50:11"),
        ("op = \"count\"\ntaxonomy = \"v1\"", "taxonomy", "50:12"),
        ("op = \"count\"\nof = [\"blockers\"]", "of", "50:6"),
        (
            "op = \"count\"\ninstruction = \"x\"",
            "instruction",
            "50:15",
        ),
        ("op = \"count\"\ntokens_max = 99", "tokens_max", "50:14"),
        (
            "op = \"summary\"\nwhere = { cause = \"none\" }",
            "where",
            "50:9",
        ),
    ] {
        refused(keys, place, &[&format!("has no {key:?}; remove it")]);
    }
    refused(
        "op = \"join\"\nwhere = { cause = \"none\" }",
        "50:9",
        &["op \"join\" has no \"where\"; put one into left or right"],
    );
    refused(
        "op = \"join\"\nfield = \"cause\"",
        "50:9",
        &["op \"join\" has no \"field\"; name it as the key of left and right"],
    );
}

#[test]
fn a_key_that_an_operation_needs_is_asked_for() {
    for (keys, key) in [
        ("op = \"count_by\"", "field"),
        ("op = \"min\"", "field"),
        ("op = \"top_k\"\nfield = \"blocker\"\nk = 1", "label"),
        ("op = \"top_k\"\nfield = \"comments\"", "k"),
        ("op = \"top_keys\"\nfield = \"cause\"", "k"),
        ("op = \"heavy_hitters\"\nfield = \"cause\"", "k"),
        ("op = \"histogram\"\nfield = \"comments\"", "edges"),
        ("op = \"quantiles\"\nfield = \"comments\"", "at"),
        (
            "op = \"join\"\nright = { key = \"id\" }\nkind = \"inner\"",
            "left",
        ),
        (
            "op = \"join\"\nleft = { key = \"id\" }\nkind = \"inner\"",
            "right",
        ),
        (
            "op = \"join\"\nleft = { key = \"id\" }\nright = { key = \"id\" }",
            "kind",
        ),
        ("op = \"clusters\"\ntaxonomy = \"v1\"", "field"),
        ("op = \"clusters\"\nfield = \"cause\"", "taxonomy"),
        ("op = \"summary\"\ninstruction = \"x\"", "of"),
        ("op = \"summary\"\nof = [\"blockers\"]", "instruction"),
    ] {
        refused(keys, "47:1", &[&format!("needs {key:?}; add it")]);
    }
}

#[test]
fn a_column_of_the_wrong_type_is_named_with_its_type() {
    for (keys, part) in [
        (
            "op = \"min\"\nfield = \"component\"",
            "op \"min\" needs an integer or time column, not column \"component\" of type \"text\"",
        ),
        (
            "op = \"sum\"\nfield = \"opened\"",
            "op \"sum\" needs an integer column, not column \"opened\" of type \"time\"",
        ),
        (
            "op = \"mean\"\nfield = \"blocker\"",
            "op \"mean\" needs an integer column, and \"blocker\" is a field; declare a [[column]]",
        ),
        (
            "op = \"distinct\"\nfield = \"blocker\"",
            "op \"distinct\" needs a column, and \"blocker\" is a field",
        ),
        (
            "op = \"count_by\"\nfield = \"comments\"",
            "op \"count_by\" needs a field or a text column, not column \"comments\" of type \
             \"integer\"",
        ),
        (
            "op = \"top_k\"\nfield = \"component\"\nk = 1",
            "needs a field, or an integer or time column, not column \"component\"",
        ),
        (
            "op = \"clusters\"\nfield = \"component\"\ntaxonomy = \"v1\"",
            "op \"clusters\" needs a field, whose labels are the taxonomy, not a column",
        ),
        (
            "op = \"max\"\nfield = \"comment\"",
            "unknown field or column \"comment\"; did you mean \"comments\"?",
        ),
    ] {
        refused(keys, "50:9", &[part]);
    }
    let none = format!("{PLAN}[[reduce]]\nname = \"r\"\nop = \"min\"\nfield = \"comments\"\n");
    let error = Plan::parse(&none, "plan.toml").unwrap_err().to_string();
    assert!(
        error.contains("the plan has no [[column]]; add one"),
        "{error}"
    );
}

#[test]
fn numbers_and_lists_out_of_range_are_refused() {
    for (keys, place, part) in [
        (
            "op = \"count\"\ncite_max = 65",
            "50:12",
            "reduce \"r\": cite_max is 65; it must be from 0 to 64",
        ),
        (
            "op = \"top_keys\"\nfield = \"cause\"\nk = 0",
            "51:5",
            "k is 0; it must be at least 1",
        ),
        (
            "op = \"heavy_hitters\"\nfield = \"cause\"\nk = 4097",
            "51:5",
            "k is 4097; it must be from 1 to 4096",
        ),
        (
            "op = \"set\"\nfield = \"component\"\nkeys_max = 0",
            "51:12",
            "keys_max is 0; it must be from 1 to 65536",
        ),
        (
            "op = \"clusters\"\nfield = \"cause\"\ntaxonomy = \"v1\"\nexemplars = 17",
            "52:13",
            "exemplars is 17; it must be from 1 to 16",
        ),
        (
            "op = \"summary\"\nof = [\"blockers\"]\ninstruction = \"x\"\ntokens_max = 15",
            "52:14",
            "tokens_max is 15; it must be from 16 to 1024",
        ),
        (
            "op = \"histogram\"\nfield = \"comments\"\nedges = [2, 1]",
            "51:9",
            "edges must be 1 to 64 integers that ascend",
        ),
        (
            "op = \"histogram\"\nfield = \"comments\"\nedges = []",
            "51:9",
            "edges must be 1 to 64 integers that ascend",
        ),
        (
            "op = \"histogram\"\nfield = \"blocker\"\nedges = [-5, 50]",
            "51:9",
            "edges must ascend and be percent (to 100) or parts per million (to 1000000)",
        ),
        (
            "op = \"quantiles\"\nfield = \"comments\"\nat = [50, 50]",
            "51:6",
            "at must be 1 to 16 integers that ascend",
        ),
        (
            "op = \"quantiles\"\nfield = \"comments\"\nat = [50, 101]",
            "51:6",
            "at must be whole percent, each from 0 to 100",
        ),
        (
            "op = \"quantiles\"\nfield = \"comments\"\nat = [-1]",
            "51:6",
            "each from 0 to 100",
        ),
    ] {
        refused(keys, place, &[part]);
    }
    let edges = |count: i64| {
        let list: Vec<String> = (0..count).map(|edge| edge.to_string()).collect();
        let list = list.join(", ");
        reduction(&format!(
            "op = \"histogram\"\nfield = \"comments\"\nedges = [{list}]"
        ))
    };
    assert!(edges(64).is_ok());
    assert!(edges(65).is_err());
    let at = |count: i64| {
        let list: Vec<String> = (0..count).map(|percent| percent.to_string()).collect();
        let list = list.join(", ");
        reduction(&format!(
            "op = \"quantiles\"\nfield = \"comments\"\nat = [{list}]"
        ))
    };
    assert!(at(16).is_ok());
    assert!(at(17).is_err());
}

#[test]
fn keys_that_fit_only_a_field_or_only_a_column_are_refused_with_the_other() {
    for (keys, place, part) in [
        (
            "op = \"count_by\"\nfield = \"cause\"\nkeys_max = 9",
            "51:12",
            "keys_max limits the keys of a column, and \"cause\" is a field with fixed labels",
        ),
        (
            "op = \"set\"\nkeys_max = 9",
            "50:12",
            "keys_max limits the keys of a column, and no field is named",
        ),
        (
            "op = \"top_k\"\nfield = \"comments\"\nlabel = \"yes\"\nk = 1",
            "51:9",
            "label belongs to a field, and \"comments\" is a column; remove label",
        ),
        (
            "op = \"top_k\"\nfield = \"blocker\"\nlabel = \"yes\"\nk = 1\norder = \"smallest\"",
            "53:9",
            "order belongs to a column, and \"blocker\" is a field; remove order",
        ),
        (
            "op = \"count_by\"\nfield = \"component\"\nwhere = { component = \"api\" }",
            "47:1",
            "counts by the field that its where fixes; use op = \"count\"",
        ),
    ] {
        refused(keys, place, &[part]);
    }
    refused(
        "op = \"top_k\"\nfield = \"comments\"\nk = 1\norder = \"largst\"",
        "52:9",
        &["unknown variant `largst`", "did you mean `largest`?"],
    );
}

#[test]
fn a_join_needs_known_keys_of_one_type() {
    let join = |left: &str, right: &str| {
        format!("op = \"join\"\nkind = \"outer\"\nleft = {{ {left} }}\nright = {{ {right} }}")
    };
    refused(
        &join("key = \"id\"", "key = \"comments\""),
        "52:17",
        &[
            "the key of left, \"id\", is of type \"text\" and that of right, \"comments\", of type \
             \"integer\"",
            "join keys of one type",
        ],
    );
    refused(
        &join("key = \"opened\"", "key = \"comments\""),
        "52:17",
        &["of type \"time\" and that of right"],
    );
    assert!(reduction(&join("key = \"opened\"", "key = \"opened\"")).is_ok());
    refused(
        &join("key = \"ids\"", "key = \"id\""),
        "51:16",
        &[
            "left of reduce \"r\": unknown field or column \"ids\"",
            "\"id\" is the unit's id",
        ],
    );
    refused(
        &join("key = \"id\"", "key = \"id\", where = { cause = \"clok\" }"),
        "52:41",
        &["where of right of reduce \"r\"", "did you mean \"clock\"?"],
    );
    refused(
        &join("where = {}", "key = \"id\""),
        "51:8",
        &["missing field `key`"],
    );
    refused(
        "op = \"join\"\nkind = \"iner\"",
        "50:8",
        &["unknown variant `iner`", "did you mean `inner`?"],
    );
}

#[test]
fn clusters_keep_every_label_in_one_place() {
    let clusters =
        |keys: &str| format!("op = \"clusters\"\nfield = \"cause\"\ntaxonomy = \"v1\"\n{keys}");
    for (keys, place, part) in [
        ("unclustered = \"nine\"", "52:15", "did you mean \"none\"?"),
        ("dissent = [\"nine\"]", "52:12", "did you mean \"none\"?"),
        (
            "dissent = [\"none\", \"none\"]",
            "52:20",
            "dissent names \"none\" twice; remove one",
        ),
        (
            "dissent = [\"none\"]\nunclustered = \"none\"",
            "52:12",
            "\"none\" is both unclustered and dissent; keep one",
        ),
        (
            "dissent = [\"clock\"]\nunclustered = \"none\"",
            "47:1",
            "take every label of field \"cause\"; leave at least one as a cluster",
        ),
    ] {
        refused(&clusters(keys), place, &[part]);
    }
    refused(
        "op = \"clusters\"\nfield = \"cause\"\ntaxonomy = \" \"",
        "51:12",
        &["reduce \"r\": taxonomy is empty; write it"],
    );
}

#[test]
fn a_summary_is_of_earlier_claims_that_are_none() {
    let summary = |of: &str| format!("op = \"summary\"\nof = [{of}]\ninstruction = \"x\"");
    for (of, place, part) in [
        ("", "50:6", "of is empty; name at least one earlier reduce"),
        ("\"blocker\"", "50:7", "did you mean \"blockers\"?"),
        (
            "\"r\"",
            "50:7",
            "of names \"r\", which is no reduce before it",
        ),
        (
            "\"blockers\", \"blockers\"",
            "50:19",
            "of names \"blockers\" twice; remove one",
        ),
    ] {
        refused(&summary(of), place, &[part]);
    }
    refused(
        "op = \"summary\"\nof = [\"blockers\"]\ninstruction = \" \"",
        "51:15",
        &["reduce \"r\": instruction is empty; write it"],
    );
    let second = "\n[[reduce]]\nname = \"s\"\nop = \"summary\"\nof = [\"r\"]\ninstruction = \"x\"";
    refused(
        &format!("{}{second}", summary("\"blockers\"")),
        "55:7",
        &["of names \"r\"", "or is a summary itself; known: blockers"],
    );
    let first = PLAN.replace("op = \"count\"", "op = \"summary\"\nof = [\"later\"]");
    let first = first.replace("where = { blocker = \"yes\" }", "instruction = \"x\"");
    let later = format!("{first}[[reduce]]\nname = \"later\"\nop = \"count\"\n");
    let error = Plan::parse(&later, "plan.toml").unwrap_err().to_string();
    assert!(
        error.contains("no reduce before it to summarise; move it behind"),
        "{error}"
    );
}

#[test]
fn the_hash_follows_columns_fold_and_operations() {
    let base = with("").unwrap().hash();
    assert_ne!(base, plan().hash(), "columns are part of the meaning");
    assert_eq!(with("[fold]\nfan_in = 2\n").unwrap().hash(), base);
    assert_ne!(with("[fold]\nkey = \"ordinal\"\n").unwrap().hash(), base);
    assert_ne!(with("[fold]\noutliers_max = 65\n").unwrap().hash(), base);
    for (from, to) in [
        (
            "name = \"component\"",
            "name = \"area\"\nfield = \"component\"",
        ),
        ("comments.count", "comments.total"),
        ("type = \"integer\"", "type = \"time\""),
    ] {
        let text = format!("{PLAN}{}", COLUMNS.replacen(from, to, 1));
        assert_ne!(Plan::parse(&text, "p").unwrap().hash(), base, "{to}");
    }
    let join = "op = \"join\"\nkind = \"inner\"\nleft = { key = \"id\" }\nright = ";
    let clusters = "op = \"clusters\"\nfield = \"cause\"\ntaxonomy = \"v1\"\n";
    let summary = "op = \"summary\"\nof = [\"blockers\"]\n";
    let variants = [
        "op = \"count\"".to_owned(),
        "op = \"count\"\nwhere = { component = \"api\" }".to_owned(),
        "op = \"count\"\nwhere = { cause = \"clock\" }".to_owned(),
        "op = \"count\"\ncite_max = 9".to_owned(),
        "op = \"count_by\"\nfield = \"cause\"".to_owned(),
        "op = \"count_by\"\nfield = \"component\"".to_owned(),
        "op = \"count_by\"\nfield = \"component\"\nkeys_max = 9".to_owned(),
        "op = \"set\"".to_owned(),
        "op = \"set\"\nfield = \"component\"".to_owned(),
        "op = \"set\"\nfield = \"component\"\nkeys_max = 9".to_owned(),
        "op = \"top_keys\"\nfield = \"component\"\nk = 9".to_owned(),
        "op = \"top_keys\"\nfield = \"component\"\nk = 8".to_owned(),
        "op = \"top_keys\"\nfield = \"component\"\nk = 9\nkeys_max = 9".to_owned(),
        "op = \"top_k\"\nfield = \"comments\"\nk = 9".to_owned(),
        "op = \"top_k\"\nfield = \"comments\"\nk = 8".to_owned(),
        "op = \"top_k\"\nfield = \"comments\"\nk = 9\norder = \"smallest\"".to_owned(),
        "op = \"top_k\"\nfield = \"blocker\"\nlabel = \"yes\"\nk = 9".to_owned(),
        "op = \"top_k\"\nfield = \"blocker\"\nlabel = \"no\"\nk = 9".to_owned(),
        "op = \"histogram\"\nfield = \"comments\"\nedges = [1]".to_owned(),
        "op = \"histogram\"\nfield = \"comments\"\nedges = [1, 2]".to_owned(),
        "op = \"histogram\"\nfield = \"blocker\"\nedges = [1]".to_owned(),
        "op = \"min\"\nfield = \"comments\"".to_owned(),
        "op = \"min\"\nfield = \"opened\"".to_owned(),
        "op = \"max\"\nfield = \"comments\"".to_owned(),
        "op = \"sum\"\nfield = \"comments\"".to_owned(),
        "op = \"mean\"\nfield = \"comments\"".to_owned(),
        "op = \"distinct\"\nfield = \"comments\"".to_owned(),
        "op = \"quantiles\"\nfield = \"comments\"\nat = [50]".to_owned(),
        "op = \"quantiles\"\nfield = \"comments\"\nat = [51]".to_owned(),
        "op = \"heavy_hitters\"\nfield = \"component\"\nk = 9".to_owned(),
        "op = \"heavy_hitters\"\nfield = \"component\"\nk = 8".to_owned(),
        format!("{join}{{ key = \"component\" }}"),
        format!("{join}{{ key = \"cause\" }}"),
        format!("{join}{{ key = \"id\" }}"),
        format!("{join}{{ key = \"id\", where = {{ cause = \"clock\" }} }}"),
        join.replace("inner", "outer") + "{ key = \"id\" }",
        clusters.to_owned(),
        clusters.replace("v1", "v2"),
        format!("{clusters}exemplars = 3"),
        format!("{clusters}unclustered = \"none\""),
        format!("{clusters}dissent = [\"none\"]"),
        format!("{summary}instruction = \"x\""),
        format!("{summary}instruction = \"y\""),
        format!("{summary}instruction = \"x\"\ntokens_max = 99"),
    ];
    let hashes: std::collections::BTreeSet<_> = variants
        .iter()
        .map(|keys| reduction(keys).unwrap().hash())
        .collect();
    assert_eq!(hashes.len(), variants.len());
    // What is written out and what is left to the default are the same.
    let hash = |keys: &str| reduction(keys).unwrap().hash();
    assert_eq!(
        hash("op = \"count\""),
        hash("op = \"count\"\ncite_max = 8\nwhere = {}")
    );
    assert_eq!(
        hash(clusters),
        hash(&format!("{clusters}exemplars = 2\ndissent = []"))
    );
}
