//! Operations over more than one name: joins, clusters, components and summaries.

use toml::Spanned;

use super::names::{Named, known_label, reference};
use super::scope::Scope;
use super::{Fault, filled};
use crate::nearest::suggest;
use crate::plan::file::JoinSideFile;
use crate::plan::{Granularity, ID_KEY, JoinSide, KeySource, Operation};

const EXEMPLARS_DEFAULT: u32 = 2;
const EXEMPLARS_MAX: u32 = 16;
const TOKENS_DEFAULT: u32 = 160;
const MEMBERS_DEFAULT: u32 = 4_096;

pub(super) fn join(scope: &Scope<'_>) -> Result<Operation, Fault> {
    let (left_file, right_file) = (
        scope.need("left", &scope.file.left)?,
        scope.need("right", &scope.file.right)?,
    );
    let kind = *scope.need("kind", &scope.file.kind)?.get_ref();
    let left = side(scope, "left", left_file)?;
    let right = side(scope, "right", right_file)?;
    let (of_left, of_right) = (left.key.kind(), right.key.kind());
    if of_left != of_right {
        let problem = format!(
            "the key of left, {:?}, is of type {:?} and that of right, {:?}, of type {:?}; join \
             keys of one type",
            left.key.name(),
            of_left.as_str(),
            right.key.name(),
            of_right.as_str(),
        );
        return Err(scope.fault(right_file.get_ref().key.span(), &problem));
    }
    Ok(Operation::Join { left, right, kind })
}

fn side(scope: &Scope<'_>, name: &str, file: &Spanned<JoinSideFile>) -> Result<JoinSide, Fault> {
    let file = file.get_ref();
    let what = format!("{name} of {}", scope.what);
    let key = file.key.get_ref();
    let key = if key == ID_KEY {
        KeySource::Id
    } else {
        let named = scope.names.find(key, &what, file.key.span());
        let named = named
            .map_err(|(span, problem)| (span, format!("{problem}; {ID_KEY:?} is the unit's id")))?;
        match named {
            Named::Field(field) => KeySource::Label(field.name.clone()),
            Named::Column(column) => KeySource::Column(reference(column)),
        }
    };
    let filter = scope
        .names
        .filter(&file.filter, &format!("where of {what}"))?;
    Ok(JoinSide { filter, key })
}

pub(super) fn clusters(scope: &Scope<'_>) -> Result<Operation, Fault> {
    let file = scope.file;
    let field = match scope.named()? {
        (Named::Field(field), _) => field,
        (Named::Column(_), span) => {
            let problem =
                "op \"clusters\" needs a field, whose labels are the taxonomy, not a column";
            return Err(scope.fault(span, problem));
        }
    };
    let taxonomy = scope.need("taxonomy", &file.taxonomy)?;
    let taxonomy = filled(&format!("{}: taxonomy", scope.what), taxonomy)?;
    let unclustered = match &file.unclustered {
        Some(label) => Some(known_label(label, field, &scope.what)?),
        None => None,
    };
    let mut dissent: Vec<String> = Vec::new();
    for label in file.dissent.iter().flat_map(Spanned::get_ref) {
        let name = known_label(label, field, &scope.what)?;
        if dissent.contains(&name) {
            let problem = format!("dissent names {name:?} twice; remove one");
            return Err(scope.fault(label.span(), &problem));
        }
        if unclustered.as_ref() == Some(&name) {
            let problem = format!("{name:?} is both unclustered and dissent; keep one");
            return Err(scope.fault(label.span(), &problem));
        }
        dissent.push(name);
    }
    if dissent.len() + usize::from(unclustered.is_some()) == field.labels.len() {
        let problem = format!(
            "unclustered and dissent take every label of field {:?}; leave at least one as a \
             cluster",
            field.name
        );
        return Err(scope.fault(scope.span.clone(), &problem));
    }
    let exemplars = scope.within("exemplars", file.exemplars.as_ref(), 1..=EXEMPLARS_MAX)?;
    Ok(Operation::Clusters {
        field: field.name.clone(),
        labels: field
            .labels
            .iter()
            .map(|label| label.name.clone())
            .collect(),
        taxonomy,
        exemplars: exemplars.unwrap_or(EXEMPLARS_DEFAULT),
        unclustered,
        dissent,
    })
}

pub(super) fn components(scope: &Scope<'_>) -> Result<Operation, Fault> {
    let field = match scope.named()? {
        (Named::Field(field), _) => field,
        (Named::Column(_), span) => {
            let problem =
                "op \"components\" needs a field, whose label joins members, not a column";
            return Err(scope.fault(span, problem));
        }
    };
    if scope.names.unit.kind != Granularity::Group {
        let problem = "op \"components\" joins the members of units, and units have none; set kind = \
                       \"group\" under [unit]";
        return Err(scope.fault(scope.span.clone(), problem));
    }
    let label = scope.need("label", &scope.file.label)?;
    let fixed = scope.filter.labels.contains_key(&field.name);
    if fixed {
        let problem =
            "its where fixes the field that joins, so that no dissent is seen; remove that";
        return Err(scope.fault(scope.span.clone(), problem));
    }
    let keys_max = scope.within("keys_max", scope.file.keys_max.as_ref(), 2..=65_536)?;
    Ok(Operation::Components {
        field: field.name.clone(),
        label: known_label(label, field, &scope.what)?,
        keys_max: keys_max.unwrap_or(MEMBERS_DEFAULT),
    })
}

pub(super) fn summary(scope: &Scope<'_>) -> Result<Operation, Fault> {
    let file = scope.file;
    let given = scope.need("of", &file.of)?;
    let known: Vec<&str> = scope
        .earlier
        .iter()
        .filter(|reduce| !matches!(reduce.op, Operation::Summary { .. }))
        .map(|reduce| reduce.name.as_str())
        .collect();
    if known.is_empty() {
        let problem =
            "there is no reduce before it to summarise; move it behind those that it is of";
        return Err(scope.fault(given.span(), problem));
    }
    let mut of: Vec<String> = Vec::new();
    for name in given.get_ref() {
        let (name, span) = (name.get_ref(), name.span());
        if !known.contains(&name.as_str()) {
            let problem = format!(
                "of names {name:?}, which is no reduce before it, or is a summary itself{}",
                suggest(name, &known)
            );
            return Err(scope.fault(span, &problem));
        }
        if of.contains(name) {
            let problem = format!("of names {name:?} twice; remove one");
            return Err(scope.fault(span, &problem));
        }
        of.push(name.clone());
    }
    if of.is_empty() {
        return Err(scope.fault(
            given.span(),
            "of is empty; name at least one earlier reduce",
        ));
    }
    let instruction = scope.need("instruction", &file.instruction)?;
    let instruction = filled(&format!("{}: instruction", scope.what), instruction)?;
    let tokens_max = scope.within("tokens_max", file.tokens_max.as_ref(), 16..=1_024)?;
    Ok(Operation::Summary {
        of,
        instruction,
        tokens_max: tokens_max.unwrap_or(TOKENS_DEFAULT),
    })
}
