//! Texts of summaries in the store: which are kept, and that each is read again.

use std::sync::Mutex;

use operator::OperatorError;
use operator::compose::ComposeJob;
use operator::event::{Event, EventLine};
use operator::id::FactKey;
use operator::store::{ContentStore, FactStore, Kind, MemoryStore, StoredAnswers};

use super::script::{Setup, run_with};
use super::writer::{Writer, claim, composed, partition, plan, run_writing};

#[test]
fn a_text_that_passed_is_remembered_and_no_other() {
    let store = MemoryStore::new();
    let (lied, _, given) = run_writing(&|_| composed("There are 31337."), Some(&store));
    assert!(claim(&lied, "in-short").refused.is_some());
    assert_eq!(given.len(), 1);
    let (first, _, given) = run_writing(&|_| composed("It is tokens."), Some(&store));
    assert_eq!(given.len(), 1, "a lie is not remembered");
    let (second, events, given) = run_writing(&|_| panic!("not asked"), Some(&store));
    assert!(given.is_empty());
    assert_eq!(second.answer, first.answer);
    assert_eq!(second.usage.composed.remembered, 1);
    assert_eq!(second.usage.composed.generated_tokens, 0);
    let told = |line: &EventLine| {
        matches!(
            line.event,
            Event::Summary {
                remembered: true,
                ..
            }
        )
    };
    assert!(events.iter().any(told));

    let write = |_: ComposeJob<'_>| composed("Anew.");
    let mut other = Writer::new(&write);
    other.script.identity.digest = [8; 32];
    let setup = || Setup {
        memo: Some(&store),
        ..Setup::default()
    };
    run_with(&plan(), &partition(), &mut other, setup()).unwrap();
    assert_eq!(other.given.len(), 1, "another model is asked");
    let mut simulated = Writer::new(&write);
    simulated.script.identity.simulated = true;
    run_with(&plan(), &partition(), &mut simulated, setup()).unwrap();
    assert_eq!(simulated.given.len(), 1, "a simulated one has no memory");
}

/// A store that hands a text out once with other words in it.
struct Tampered<'s> {
    store: &'s MemoryStore,
    words: Mutex<Option<&'static str>>,
}

impl FactStore for Tampered<'_> {
    fn get(&self, key: &FactKey) -> Option<StoredAnswers> {
        self.store.get(key)
    }

    fn put(&self, key: &FactKey, stored: &StoredAnswers) -> Result<(), OperatorError> {
        self.store.put(key, stored)
    }

    fn exchange(
        &self,
        put: &[(FactKey, StoredAnswers)],
        forget: &[FactKey],
    ) -> Result<(), OperatorError> {
        self.store.exchange(put, forget)
    }
}

impl ContentStore for Tampered<'_> {
    fn get_bytes(&self, kind: Kind, key: &[u8; 32]) -> Option<Vec<u8>> {
        let bytes = self.store.get_bytes(kind, key)?;
        if kind != Kind::Text {
            return Some(bytes);
        }
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("It is tokens."));
        let words = self.words.lock().unwrap().take().unwrap_or("It is tokens.");
        Some(text.replace("It is tokens.", words).into_bytes())
    }

    fn put_bytes(&self, kind: Kind, entries: &[([u8; 32], Vec<u8>)]) -> Result<(), OperatorError> {
        self.store.put_bytes(kind, entries)
    }
}

#[test]
fn a_remembered_text_is_read_again_and_one_that_lies_is_written_anew() {
    let store = MemoryStore::new();
    let (first, ..) = run_writing(&|_| composed("It is tokens."), Some(&store));
    for words in ["It is 31337 tokens.", "\",\"torn"] {
        let tampered = Tampered {
            store: &store,
            words: Mutex::new(Some(words)),
        };
        let (second, _, given) = run_writing(&|_| composed("It is tokens."), Some(&tampered));
        assert_eq!(given.len(), 1, "{words}");
        assert_eq!(second.answer, first.answer);
        let (third, _, given) = run_writing(&|_| panic!("not asked"), Some(&tampered));
        assert!(given.is_empty());
        assert_eq!(third.answer, first.answer);
    }
}

#[test]
fn a_text_that_fails_its_re_reading_is_replaced_in_the_store() {
    let store = MemoryStore::new();
    let key = [5; 32];
    for text in [&b"one"[..], b"two"] {
        store
            .put_bytes(Kind::Text, &[(key, text.to_vec())])
            .unwrap();
        store
            .put_bytes(Kind::Fact, &[(key, text.to_vec())])
            .unwrap();
    }
    assert_eq!(store.get_bytes(Kind::Text, &key).unwrap(), b"two");
    assert_eq!(store.get_bytes(Kind::Fact, &key).unwrap(), b"one");
}
