//! The steps of a plan as a table: what came in, what was decided, what went on, and what it cost.

use comfy_table::{CellAlignment, Table, presets};
use operator::run::{Rung, RungKind};

use super::words;

/// Renders the steps, each with its cost in time and, where a model computed, in tokens.
pub fn table(rungs: &[Rung]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "step",
        "in",
        "decided",
        "excluded",
        "no answer",
        "on",
        "cost",
    ]);
    for rung in rungs {
        let name = format!("{} {}", rung.kind.as_str(), rung.name);
        let cost = match rung.computed_tokens {
            0 => words::millis(rung.micros),
            tokens => format!("{tokens} tokens, {}", words::millis(rung.micros)),
        };
        let without = rung.abstained + rung.errored + rung.stopped;
        let on = match rung.kind {
            RungKind::Index => format!("{} members", rung.members),
            RungKind::Predicate | RungKind::Stage => rung.onward.to_string(),
        };
        let mut cells = vec![name, rung.seen.to_string()];
        cells.extend(match rung.kind {
            RungKind::Index => [String::new(), String::new(), String::new()],
            _ => [rung.decided, rung.excluded, without].map(|count| count.to_string()),
        });
        cells.extend([on, cost]);
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}
