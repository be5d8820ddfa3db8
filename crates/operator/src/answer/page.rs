//! The answer as Markdown: coverage first, then the claims with quotes, then what it cost.
//!
//! Text of records is escaped and kept on one line, so a record cannot forge a heading, a link or
//! a row of a table. Must not know how the answer was computed.

use std::fmt::Write as _;

use crate::answer::{CitedAnswer, Selection};
use crate::audit::AuditReport;
use crate::fact::{Cite, Evidence, Status};
use crate::run::RunUsage;

/// Writes `answer.md`.
pub fn render_page(answer: &CitedAnswer, usage: &RunUsage) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(&mut page, answer, usage);
    page
}

fn write_page(page: &mut String, answer: &CitedAnswer, usage: &RunUsage) -> std::fmt::Result {
    writeln!(page, "# {}\n", escape(&answer.question))?;
    if answer.simulated {
        writeln!(
            page,
            "> **SIMULATED**: answers were replayed or scripted by {}; no model was asked.\n",
            escape(&answer.backend.name)
        )?;
    }
    if let Some(quarantine) = &answer.quarantine {
        writeln!(
            page,
            "> **QUARANTINED**: {}. Nothing of this run may be taken for a fact, and none of it is \
             remembered.\n",
            escape(&quarantine.reason)
        )?;
    }
    if !answer.complete {
        writeln!(
            page,
            "> **INCOMPLETE**: some units have no answer; see the coverage.\n"
        )?;
    }
    if let Some(stop) = &answer.stop {
        writeln!(page, "> **STOPPING RULES**: {}.\n", escape(&stop.text))?;
    }
    write_coverage(page, answer)?;
    writeln!(page, "\n## Answer\n")?;
    if answer.claims.is_empty() {
        writeln!(page, "The plan asks for no reduction.\n")?;
    }
    for claim in &answer.claims {
        writeln!(
            page,
            "- **{}**: {}",
            escape(&claim.name),
            escape(&claim.text)
        )?;
        for cite in &claim.cites {
            writeln!(page, "  - {}", quote(cite))?;
        }
        let shown = claim.cites.len() as u64;
        if shown < claim.cites_total {
            writeln!(page, "  - {shown} of {} citations shown", claim.cites_total)?;
        }
    }
    if !answer.selections.is_empty() {
        writeln!(page, "\n## Choices")?;
    }
    for selection in &answer.selections {
        write_selection(page, selection)?;
    }
    if let Some(audit) = &answer.audit {
        write_audit(page, audit)?;
    }
    write_usage(page, answer, usage)
}

fn write_selection(page: &mut String, selection: &Selection) -> std::fmt::Result {
    writeln!(page, "\n{}\n", escape(&selection.told()))?;
    for (place, row) in selection.matrix().iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|cell| escape(cell)).collect();
        writeln!(page, "| {} |", cells.join(" | "))?;
        if place == 0 {
            writeln!(page, "|---|{}", "---:|".repeat(row.len() - 1))?;
        }
    }
    writeln!(page)?;
    for line in selection.closest() {
        writeln!(page, "- {}", escape(&line))?;
    }
    Ok(())
}

fn write_audit(page: &mut String, audit: &AuditReport) -> std::fmt::Result {
    writeln!(page, "\n## Audit\n\n{}\n", escape(&audit.text))?;
    writeln!(
        page,
        "| not found, by what left it out | units | read | missed | undecided | missed at most |\n\
         |---|---:|---:|---:|---:|---:|"
    )?;
    for row in &audit.strata {
        let stratum = escape(&row.stratum.to_string());
        writeln!(
            page,
            "| {stratum} | {} | {} | {} | {} | {} |",
            row.population, row.audited, row.missed, row.unresolved, row.misses_upper
        )?;
    }
    Ok(())
}

fn write_coverage(page: &mut String, answer: &CitedAnswer) -> std::fmt::Result {
    writeln!(
        page,
        "## Coverage\n\n| status | stage | reason | units |\n|---|---|---|---:|"
    )?;
    for status in Status::ALL {
        writeln!(
            page,
            "| **{status}** | | | **{}** |",
            answer.coverage.of(status)
        )?;
        for row in answer
            .coverage_by_reason
            .iter()
            .filter(|row| row.status == status)
        {
            let reason = escape(row.reason.as_deref().unwrap_or_default());
            writeln!(
                page,
                "| | {} | {reason} | {} |",
                escape(&row.stage),
                row.units
            )?;
        }
    }
    writeln!(page, "| **all** | | | **{}** |", answer.coverage.units)
}

fn write_usage(page: &mut String, answer: &CitedAnswer, usage: &RunUsage) -> std::fmt::Result {
    writeln!(page, "\n## Cost\n\n| what | amount |\n|---|---:|")?;
    let rows = [
        ("prompt tokens", usage.job.prompt_tokens),
        ("computed", usage.job.computed_tokens),
        ("cached", usage.job.cached_tokens),
        ("generated tokens", usage.job.generated_tokens),
        ("forward passes", usage.job.forwards),
        ("remembered units", usage.remembered_units),
        ("units of equal text", usage.duplicate_units),
        ("tokens as if uncached", usage.tokens_as_if_uncached),
        ("wall time, ms", usage.wall_ms),
    ];
    let composed = &usage.composed;
    let texts = [
        ("prompt tokens of canaries", usage.canary_tokens),
        ("summaries written", composed.texts),
        ("summaries remembered", composed.remembered),
        ("their prompt tokens", composed.prompt_tokens),
        ("their generated tokens", composed.generated_tokens),
    ];
    let texts = texts.into_iter().filter(|(_, amount)| *amount > 0);
    for (name, amount) in rows.into_iter().chain(texts) {
        writeln!(page, "| {name} | {amount} |")?;
    }
    writeln!(page, "\nbackend {}  ", escape(&answer.backend.name))?;
    writeln!(
        page,
        "source {} ({})  ",
        escape(&answer.source.path),
        answer.source.hash
    )?;
    writeln!(page, "result {}", answer.result_hash)
}

fn quote(cite: &Cite) -> String {
    let unit = escape(cite.unit_id.as_str());
    let quoted = match &cite.span {
        None => format!("`{}` {unit}", short(&cite.source_hash.to_string())),
        Some(span) => format!("{unit}, {}", told(span)),
    };
    let also = cite.also.iter().map(|span| format!("; {}", told(span)));
    quoted + &also.collect::<String>()
}

fn told(span: &Evidence) -> String {
    let quote = match &span.quote {
        Some(quote) => format!("\"{}\"", escape(quote)),
        None => format!("redacted, `{}`", short(&span.quote_hash.to_string())),
    };
    let (start, end) = (span.start, span.end);
    format!("{} {start}..{end}: {quote}", escape(&span.field))
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// Puts text on one line and takes the meaning from Markdown and HTML characters.
fn escape(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => line.push_str("&lt;"),
            '>' => line.push_str("&gt;"),
            '&' => line.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '!' | '~' => line.extend(['\\', c]),
            c if c.is_control() || c == '\u{2028}' || c == '\u{2029}' => line.push(' '),
            c => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_record_stays_on_one_line_and_loses_its_markup() {
        let hostile = "a\n# b | [x](y) <img> `c` & \\";
        assert_eq!(
            escape(hostile),
            "a \\# b \\| \\[x\\](y) &lt;img&gt; \\`c\\` &amp; \\\\"
        );
    }
}
