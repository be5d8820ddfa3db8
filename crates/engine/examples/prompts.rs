//! Writes the exact prompts of a plan as JSONL lines `{"prefix", "record", "labels"}`, so that another
//! engine can be given the same work: `prompts PLAN INPUT MODEL.gguf COUNT`.

use std::path::Path;

use engine::model::ModelFiles;
use engine::prompt::PromptTemplate;
use engine::tokenizer::Tokenizer;
use operator::Plan;
use operator::ops::partition;
use operator::record::read_source;
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [plan, input, model, count] = arguments.as_slice() else {
        return Err("usage: prompts PLAN INPUT MODEL.gguf COUNT".into());
    };
    let plan = Plan::load(Path::new(plan))?;
    let (artifact, records, bad) = read_source(Path::new(input), None)?;
    let parts = partition(&plan, artifact, records, bad)?;
    let files = ModelFiles::open(Path::new(model))?;
    let metadata = files
        .gguf_metadata()
        .ok_or("the model must be a GGUF file")?;
    let tokenizer = Tokenizer::from_gguf(metadata)?;
    let split = PromptTemplate::from_gguf(metadata)?.split(&tokenizer, &plan.rubric().system)?;
    let prefix = tokenizer.decode(&split.prefix);
    let close = tokenizer.decode(&split.close);
    let question = plan.questions().remove(0);
    // Without the trailing space, which tokenizers join with the word that follows.
    let scaffold = question.scaffold.trim_end();
    let space = &question.scaffold[scaffold.len()..];
    for unit in parts.units.iter().take(count.parse()?) {
        let text = operator::text::render(&plan, unit).map_err(|problem| problem.message)?;
        let labels = question.labels.of(&text);
        let labels: Vec<String> = labels
            .iter()
            .map(|label| format!("{space}{label}"))
            .collect();
        let record = format!("{}{close}{scaffold}", text.text);
        println!(
            "{}",
            json!({ "prefix": prefix, "record": record, "labels": labels })
        );
    }
    Ok(())
}
