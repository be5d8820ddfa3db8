//! Tools: each kind has its own keys, every placeholder is a declared argument, every limit is sane.

use std::ops::{Range, RangeInclusive};

use toml::Spanned;

use super::{Fault, plain_name, within};
use crate::nearest::suggest;
use crate::plan::tool_file::ToolFile;
use crate::plan::{FileTool, HttpTool, McpTool, ProcessTool, SqlTool, ToolKind, ToolSpec};
use crate::tool::{Argument, ArgumentKind, Over, Quota, Template};

const ROWS_DEFAULT: u32 = 100;
const BYTES_MAX: u64 = 16 << 20;
const HOUR_MS: u64 = 3_600_000;

/// Kinds, the keys that each needs, and those that it may have.
const KINDS: [(&str, &[&str], &[&str]); 5] = [
    ("file", &["root", "file"], &["missing"]),
    ("sql", &["database", "query"], &["rows_max"]),
    (
        "http",
        &["url"],
        &["hosts", "private_hosts", "headers", "headers_env"],
    ),
    ("process", &["program"], &["args", "env", "directory"]),
    (
        "mcp",
        &["command", "call", "read_only"],
        &["env", "constants"],
    ),
];

/// One tool under check.
struct Check<'f> {
    file: &'f ToolFile,
    span: Range<usize>,
    what: String,
}

pub(super) fn tool(spanned: &Spanned<ToolFile>) -> Result<ToolSpec, Fault> {
    let file = spanned.get_ref();
    plain_name("tool", &file.name).map_err(|problem| (spanned.span(), problem))?;
    let check = Check {
        file,
        span: spanned.span(),
        what: format!("tool {:?}", file.name),
    };
    check.keys()?;
    let arguments = check.arguments()?;
    let kind = match file.kind.get_ref().as_str() {
        "file" => ToolKind::File(check.file(&arguments)?),
        "sql" => ToolKind::Sql(check.sql(&arguments)?),
        "http" => ToolKind::Http(check.http(&arguments)?),
        "process" => ToolKind::Process(check.process(&arguments)?),
        _ => ToolKind::Mcp(check.mcp(&arguments)?),
    };
    Ok(ToolSpec {
        name: file.name.clone(),
        kind,
        arguments,
        quota: check.quota()?,
        max_age_s: file.max_age.unwrap_or(0),
    })
}

impl Check<'_> {
    fn fault<T>(&self, span: Range<usize>, problem: impl AsRef<str>) -> Result<T, Fault> {
        Err((span, format!("{}: {}", self.what, problem.as_ref())))
    }

    /// Refuses unknown kinds, keys of another kind, and missing keys.
    fn keys(&self) -> Result<(), Fault> {
        let kind = self.file.kind.get_ref().as_str();
        let Some((_, needed, optional)) = KINDS.iter().find(|(name, ..)| *name == kind) else {
            let known: Vec<&str> = KINDS.iter().map(|(name, ..)| *name).collect();
            let problem = format!("unknown kind {kind:?}{}", suggest(kind, &known));
            return self.fault(self.file.kind.span(), problem);
        };
        let given = self.given();
        for (key, span) in &given {
            if !needed.contains(key) && !optional.contains(key) {
                let keys = [*needed, *optional].concat().join(", ");
                let problem = format!("kind {kind:?} has no key {key}; its keys are {keys}");
                return self.fault(span.clone(), problem);
            }
        }
        match needed
            .iter()
            .find(|key| !given.iter().any(|(name, _)| name == *key))
        {
            Some(key) => self.fault(self.span.clone(), format!("kind {kind:?} needs {key}")),
            None => Ok(()),
        }
    }

    /// The keys that belong to a kind, where they are written.
    fn given(&self) -> Vec<(&'static str, Range<usize>)> {
        fn at<T>(name: &'static str, value: &Option<Spanned<T>>) -> Option<Key> {
            value.as_ref().map(|value| (name, value.span()))
        }
        type Key = (&'static str, Range<usize>);
        let file = self.file;
        [
            at("root", &file.root),
            at("file", &file.file),
            at("missing", &file.missing),
            at("database", &file.database),
            at("query", &file.query),
            at("rows_max", &file.rows_max),
            at("url", &file.url),
            at("hosts", &file.hosts),
            at("private_hosts", &file.private_hosts),
            at("headers", &file.headers),
            at("headers_env", &file.headers_env),
            at("program", &file.program),
            at("args", &file.args),
            at("env", &file.env),
            at("directory", &file.directory),
            at("command", &file.command),
            at("call", &file.call),
            at("read_only", &file.read_only),
            at("constants", &file.constants),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn arguments(&self) -> Result<Vec<Argument>, Fault> {
        let check = |(name, spanned): (
            &String,
            &Spanned<super::super::tool_file::ArgumentFile>,
        )| {
            let argument = spanned.get_ref();
            plain_name("argument", name).or_else(|problem| self.fault(spanned.span(), problem))?;
            let field = &argument.field;
            if field.is_empty() || field.chars().any(char::is_control) {
                let problem = format!(
                    "argument {name:?} has an empty field or one with control characters; write the \
                     path in the record"
                );
                return self.fault(spanned.span(), problem);
            }
            Ok(Argument {
                name: name.clone(),
                field: field.clone(),
                kind: argument.kind.unwrap_or(ArgumentKind::Text),
            })
        };
        self.file.arguments.iter().map(check).collect()
    }

    fn file(&self, arguments: &[Argument]) -> Result<FileTool, Fault> {
        let file = self.template(required(&self.file.file), arguments)?;
        self.all_used(arguments, file.names())?;
        let missing_is_empty = match &self.file.missing {
            None => false,
            Some(given) => match given.get_ref().as_str() {
                "error" => false,
                "empty" => true,
                other => {
                    let near = suggest(other, &["error", "empty"]);
                    let problem =
                        format!("missing is {other:?}; it is \"error\" or \"empty\"{near}");
                    return self.fault(given.span(), problem);
                }
            },
        };
        Ok(FileTool {
            root: required(&self.file.root).get_ref().clone(),
            file,
            missing_is_empty,
        })
    }

    fn sql(&self, arguments: &[Argument]) -> Result<SqlTool, Fault> {
        let query = required(&self.file.query);
        let named = parameters(query.get_ref());
        for name in &named {
            if !arguments.iter().any(|argument| argument.name == *name) {
                return self.unknown(name, arguments, query.span());
            }
        }
        self.all_used(arguments, named.iter().map(String::as_str))?;
        let rows_max = within(
            self.file.rows_max.as_ref(),
            &format!("{}: rows_max", self.what),
            1..=100_000,
        )?;
        Ok(SqlTool {
            database: required(&self.file.database).get_ref().clone(),
            query: query.get_ref().trim().to_owned(),
            rows_max: rows_max.unwrap_or(ROWS_DEFAULT),
        })
    }

    fn http(&self, arguments: &[Argument]) -> Result<HttpTool, Fault> {
        let file = self.file;
        let spanned = required(&file.url);
        let url = self.template(spanned, arguments)?;
        self.all_used(arguments, url.names())?;
        let host = match host(&url) {
            Ok(host) => host,
            Err(problem) => return self.fault(spanned.span(), problem),
        };
        let mut hosts = vec![host.clone()];
        for other in file.hosts.iter().flat_map(|hosts| hosts.get_ref()) {
            let other = other.to_ascii_lowercase();
            if !hosts.contains(&other) {
                hosts.push(other);
            }
        }
        let private = file.private_hosts.iter().flat_map(|hosts| hosts.get_ref());
        let private_hosts: Vec<String> = private.map(|host| host.to_ascii_lowercase()).collect();
        for listed in hosts.iter().chain(&private_hosts) {
            if listed.is_empty() || listed.contains(['/', '*', '@', ' ']) {
                let problem = format!("{listed:?} is no host; write each by its full name");
                return self.fault(self.span.clone(), problem);
            }
        }
        if let Some(host) = private_hosts.iter().find(|host| !hosts.contains(host)) {
            let problem = format!("private_hosts names {host:?}, which is not among the hosts");
            return self.fault(self.span.clone(), problem);
        }
        let map = |given: &Option<Spanned<std::collections::BTreeMap<String, String>>>| {
            let given = given.iter().flat_map(|given| given.get_ref());
            given
                .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
                .collect()
        };
        Ok(HttpTool {
            url,
            host,
            hosts,
            private_hosts,
            headers: map(&file.headers),
            headers_env: map(&file.headers_env),
        })
    }

    fn process(&self, arguments: &[Argument]) -> Result<ProcessTool, Fault> {
        let file = self.file;
        let given = file.args.iter().flat_map(|args| args.get_ref());
        let args: Vec<Template> = given
            .map(|arg| self.template(arg, arguments))
            .collect::<Result<_, _>>()?;
        self.all_used(arguments, args.iter().flat_map(Template::names))?;
        let program = required(&file.program);
        if program.get_ref().trim().is_empty() {
            return self.fault(program.span(), "program is empty; name one");
        }
        let directory = file.directory.as_ref();
        Ok(ProcessTool {
            program: program.get_ref().clone(),
            args,
            env: file
                .env
                .as_ref()
                .map_or_else(Vec::new, |env| env.get_ref().clone()),
            directory: directory.map_or_else(|| ".".into(), |path| path.get_ref().clone()),
        })
    }

    fn mcp(&self, arguments: &[Argument]) -> Result<McpTool, Fault> {
        let file = self.file;
        let read_only = required(&file.read_only);
        if !read_only.get_ref() {
            let problem = "read_only is false; a tool only reads, and what changes the world is an \
                           [[effect]]";
            return self.fault(read_only.span(), problem);
        }
        let command = required(&file.command);
        if command.get_ref().is_empty() {
            return self.fault(
                command.span(),
                "command is empty; name the server's program",
            );
        }
        let env = file.env.as_ref();
        let constants = file.constants.as_ref();
        let constants = constants.map_or_else(Default::default, |given| given.get_ref().clone());
        if let Some(argument) = arguments.iter().find(|a| constants.contains_key(&a.name)) {
            let problem = format!("{:?} is both an argument and a constant", argument.name);
            return self.fault(self.span.clone(), problem);
        }
        Ok(McpTool {
            command: command.get_ref().clone(),
            env: env.map_or_else(Vec::new, |env| env.get_ref().clone()),
            call: required(&file.call).get_ref().clone(),
            constants,
        })
    }

    fn quota(&self) -> Result<Quota, Fault> {
        let file = self.file;
        let default = Quota::default();
        let small = |given: &Option<Spanned<u32>>, key: &str, to| {
            within(given.as_ref(), &format!("{}: {key}", self.what), 1..=to)
        };
        let per_kilosecond = match &file.per_second {
            None => None,
            Some(rate) => {
                let kilo = (rate.get_ref() * 1_000.0).round();
                if !(1.0..=1e9).contains(&kilo) {
                    let problem = "per_second must be from 0.001 to 1000000";
                    return self.fault(rate.span(), problem);
                }
                Some(kilo as u64)
            }
        };
        if let (Some(burst), None) = (&file.burst, per_kilosecond) {
            return self.fault(burst.span(), "burst without per_second limits nothing");
        }
        Ok(Quota {
            concurrency: small(&file.concurrency, "concurrency", 256)?
                .unwrap_or(default.concurrency),
            per_kilosecond,
            burst: small(&file.burst, "burst", 10_000)?.unwrap_or(default.burst),
            bytes_max: self
                .number(&file.bytes_max, "bytes_max", 1..=BYTES_MAX)?
                .unwrap_or(default.bytes_max),
            over: file.over.unwrap_or(Over::Error),
            calls_max: self
                .number(&file.calls_max, "calls_max", 1..=u64::MAX)?
                .unwrap_or(default.calls_max),
            attempts_max: small(&file.attempts_max, "attempts_max", 10)?
                .unwrap_or(default.attempts_max),
            timeout_ms: self
                .number(&file.timeout_ms, "timeout_ms", 1..=HOUR_MS)?
                .unwrap_or(default.timeout_ms),
            backoff_ms: self
                .number(&file.backoff_ms, "backoff_ms", 1..=HOUR_MS)?
                .unwrap_or(default.backoff_ms),
            wait_max_ms: self
                .number(&file.wait_max_ms, "wait_max_ms", 1..=24 * HOUR_MS)?
                .unwrap_or(default.wait_max_ms),
            price_micros: file.price_micros.unwrap_or(0),
        })
    }

    fn number(
        &self,
        given: &Option<Spanned<u64>>,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Fault> {
        let Some(given) = given else { return Ok(None) };
        let number = *given.get_ref();
        if range.contains(&number) {
            return Ok(Some(number));
        }
        let (from, to) = range.into_inner();
        let problem = format!("{key} is {number}; it must be from {from} to {to}");
        self.fault(given.span(), problem)
    }

    fn template(&self, text: &Spanned<String>, arguments: &[Argument]) -> Result<Template, Fault> {
        let template = match Template::parse(text.get_ref()) {
            Ok(template) => template,
            Err(problem) => return self.fault(text.span(), problem),
        };
        for name in template.names() {
            if !arguments.iter().any(|argument| argument.name == name) {
                return self.unknown(name, arguments, text.span());
            }
        }
        Ok(template)
    }

    fn unknown<T>(
        &self,
        name: &str,
        arguments: &[Argument],
        span: Range<usize>,
    ) -> Result<T, Fault> {
        let known: Vec<&str> = arguments.iter().map(|a| a.name.as_str()).collect();
        let cure = if known.is_empty() {
            "; declare it in arguments = { ... }".to_owned()
        } else {
            suggest(name, &known)
        };
        self.fault(span, format!("{name:?} is not a declared argument{cure}"))
    }

    fn all_used<'n>(
        &self,
        arguments: &[Argument],
        used: impl Iterator<Item = &'n str>,
    ) -> Result<(), Fault> {
        let used: Vec<&str> = used.collect();
        match arguments.iter().find(|a| !used.contains(&a.name.as_str())) {
            Some(argument) => {
                let problem = format!(
                    "argument {:?} is never used; use or remove it",
                    argument.name
                );
                self.fault(self.file.arguments[&argument.name].span(), problem)
            }
            None => Ok(()),
        }
    }
}

/// A key whose presence was checked.
fn required<T>(given: &Option<T>) -> &T {
    match given {
        Some(given) => given,
        None => unreachable!("keys were checked"),
    }
}

/// The host of an address; it must be written out, so that no record can choose it.
fn host(url: &Template) -> Result<String, String> {
    let shown = url.text();
    let head = url.head();
    let rest = head
        .strip_prefix("https://")
        .or_else(|| head.strip_prefix("http://"))
        .ok_or_else(|| format!("url {shown:?} must start with https:// or http://"))?;
    let authority = match rest.split_once(['/', '?', '#']) {
        Some((authority, _)) => authority,
        None if head == shown => rest,
        None => {
            return Err(format!(
                "url {shown:?} has an argument in its host; write the host out, for a record must not \
                 choose where a request goes"
            ));
        }
    };
    if authority.contains('@') {
        return Err(format!(
            "url {shown:?} has a user name; use headers_env for what must stay secret"
        ));
    }
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    if host.is_empty() {
        return Err(format!("url {shown:?} names no host"));
    }
    Ok(host.to_ascii_lowercase())
}

/// Names of `:name` parameters outside quoted texts and comments.
fn parameters(query: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut rest = query;
    while let Some(at) = rest.find(['\'', '"', ':', '-', '/']) {
        let tail = &rest[at..];
        let skipped = if let Some(quoted) = tail.strip_prefix('\'') {
            quoted.find('\'').map_or(tail.len(), |end| end + 2)
        } else if let Some(quoted) = tail.strip_prefix('"') {
            quoted.find('"').map_or(tail.len(), |end| end + 2)
        } else if tail.starts_with("--") {
            tail.find('\n').unwrap_or(tail.len())
        } else if tail.starts_with("/*") {
            tail.find("*/").map_or(tail.len(), |end| end + 2)
        } else if let Some(named) = tail.strip_prefix(':') {
            let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            let name = &named[..named.find(word).unwrap_or(named.len())];
            if !name.is_empty() && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
            1 + name.len()
        } else {
            1
        };
        rest = &tail[skipped..];
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_outside_texts_and_comments() {
        let query =
            "SELECT ':no' -- :nor\n, \":neither\" FROM t /* :not */ WHERE a=:a AND b = :b_2 OR :a";
        assert_eq!(parameters(query), ["a", "b_2"]);
    }

    #[test]
    fn the_host_of_an_address_is_written_out() {
        let of = |text: &str| host(&Template::parse(text).unwrap());
        assert_eq!(
            of("https://API.example.org:8080/a/{b}").unwrap(),
            "api.example.org"
        );
        assert_eq!(of("http://[::1]:8080/a").unwrap(), "::1");
        assert_eq!(of("http://example.org?q={b}").unwrap(), "example.org");
        for text in [
            "http://{h}/a",
            "http://a{h}/",
            "ftp://a/",
            "http://u@a/",
            "http:///a",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
