//! Records that lie across the ends of reads, records that are too long, and the places of errors.

use std::io;

use serde_json::Value;

use super::bytes::Bytes;
use super::{BadRecord, Format, Record, Scan, SourceArtifact, Span};
use crate::error::OperatorError;
use crate::id::ContentHash;

/// Hands out a few bytes at a time, as a slow file may.
struct Drip<'a>(&'a [u8], usize);

impl Bytes for Drip<'_> {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.1);
        self.0.read_at(at, &mut buffer[..most])
    }
}

type Read = (Vec<(Span, Record)>, Vec<BadRecord>);

fn read(scan: &Scan<'_>) -> Result<(SourceArtifact, Read), OperatorError> {
    let (mut records, mut bad) = (Vec::new(), Vec::new());
    let source = scan.visit(&mut |span, found| {
        match found {
            Ok(record) => records.push((span, record)),
            Err(problem) => bad.push(problem),
        }
        Ok(())
    })?;
    Ok((source, (records, bad)))
}

const INPUTS: [&str; 7] = [
    "\u{feff}[ {\"a\":\"é\u{1f511} \\ud83d\"},\n 7 ,\r\n{\"a\":[{\"b\":\"]}\\\"\"}]} , {} ]\n ",
    "[{\"a\":1},{\"a\":-2.5e3}]",
    "{\"a\":\"é\u{1f511} \\ud83d\"}\r\n\r\n  {\"a\":\n[1]\n{\"a\":2}",
    "\u{feff}id,body\r\n1,\"two\r\nlines, \"\"q\"\"\"\r\n\r\n2,\r\n3\r\n4,\u{e9}\r\n",
    "id;body\r1;x\r\"2\";\"\"\r",
    "id\tbody\n1\tx\n2\t\"y\"",
    "{\"a\":{\"b\":1}}",
];

#[test]
fn records_are_the_same_however_few_bytes_a_read_yields() {
    for text in INPUTS {
        let whole = Scan::open("in", Box::new(text.as_bytes()), None).unwrap();
        let wanted = read(&whole).unwrap();
        assert_eq!(wanted.0.hash, ContentHash::of_bytes(text.as_bytes()));
        assert_eq!(wanted.0.bytes, text.len() as u64);
        for few in 1..5 {
            let slow = Scan::open("in", Box::new(Drip(text.as_bytes(), few)), None).unwrap();
            assert_eq!(read(&slow).unwrap(), wanted, "{few} of {text:?}");
        }
    }
}

#[test]
fn a_record_is_read_again_from_its_span() {
    for text in INPUTS {
        let scan = Scan::open("in", Box::new(text.as_bytes()), None).unwrap();
        let (_, (records, _)) = read(&scan).unwrap();
        assert!(!records.is_empty());
        for (span, record) in records {
            let again = scan.read(record.ordinal, span).unwrap().unwrap();
            assert_eq!(again.fields, record.fields, "{text:?}");
            assert_eq!(again.warnings, record.warnings);
            assert_eq!(again.source_hash(), record.source_hash());
        }
    }
}

#[test]
fn a_record_that_is_too_long_is_one_bad_record_and_the_rest_goes_on() {
    let long = "x".repeat(200);
    for text in [
        format!("[{{\"a\":1}},{{\"a\":\"{long}\"}},{{\"a\":2}}]"),
        format!("{{\"a\":1}}\n{{\"a\":\"{long}\"}}\n{{\"a\":2}}\n"),
        format!("a,b\n1,\n{long},\n2,\n"),
    ] {
        let mut hashes = Vec::new();
        for few in [7, 1_000] {
            let mut scan = Scan::open("in", Box::new(Drip(text.as_bytes(), few)), None).unwrap();
            scan.record_bytes_max = 100;
            let (_, (records, bad)) = read(&scan).unwrap();
            let ordinals: Vec<u32> = records.iter().map(|(_, record)| record.ordinal).collect();
            assert_eq!(ordinals, [0, 2], "{text}");
            assert_eq!((bad.len(), bad[0].ordinal), (1, 1), "{text}");
            assert!(bad[0].problem.contains("too long"), "{}", bad[0].problem);
            hashes.push(bad[0].hash);
        }
        assert_eq!(hashes[0], hashes[1], "the hash is of all its bytes");
    }
}

/// What the parser says of the whole text.
fn said_of(text: &[u8]) -> Option<String> {
    let error = serde_json::from_slice::<Value>(text).err()?;
    Some(format!("in:{}:{}: ({error})", error.line(), error.column()))
}

/// The same of the reader that goes element by element.
fn found_in(text: &[u8]) -> Option<String> {
    let open = Scan::open("in", Box::new(text), Some(Format::Json));
    let error = open.and_then(|scan| read(&scan)).err()?;
    let shown = error.to_string();
    let (place, rest) = shown.split_once(": ")?;
    let (_, rest) = rest.split_once('(')?;
    Some(format!("{place}: ({})", rest.split_once("); ")?.0))
}

#[test]
fn a_broken_array_is_told_of_in_the_parsers_words_and_at_its_place() {
    let text = "[\n {\"a\": [1, 2.5, null], \"b\": \"x, ]\\\"y\"},\r\n  7 , true,[\"z\"] ,\n{} ]\n";
    assert_eq!(said_of(text.as_bytes()), None);
    assert_eq!(found_in(text.as_bytes()), None);
    for cut in 1..text.len() - 2 {
        let cut = &text.as_bytes()[..cut];
        assert!(said_of(cut).is_some());
        assert_eq!(
            found_in(cut),
            said_of(cut),
            "{:?}",
            cut.utf8_chunks().next()
        );
    }
    for broken in [
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1]x",
        "[}",
        "[{\"a\":1]",
        "[\"a\nb\"]",
        "[{\"a\" 1}]",
        "[1}",
        "[nul]",
        "[[1},2]",
        "[{\"a\":1}\n,\n]",
        "[{}{}]",
        "[\n]]",
    ] {
        assert!(said_of(broken.as_bytes()).is_some(), "{broken}");
        let (found, said) = (found_in(broken.as_bytes()), said_of(broken.as_bytes()));
        assert_eq!(found, said, "{broken}");
    }
}

#[test]
fn an_array_is_whole_exactly_where_the_parser_takes_it() {
    let text = b"[{\"a\":[1,{\"b\":\"\\u00e9]\"}]}, 12,{}]";
    for place in 0..text.len() {
        for byte in *b"[]{},:\"\\ 1a\n\t\x01" {
            let mut other = text.to_vec();
            other[place] = byte;
            let array = matches!(serde_json::from_slice(&other), Ok(Value::Array(_)));
            let scan = Scan::open("in", Box::new(other.as_slice()), Some(Format::Json));
            let whole = scan.and_then(|scan| read(&scan)).is_ok();
            let shown = String::from_utf8_lossy(&other);
            assert_eq!(whole, array, "{shown}");
        }
    }
}
