use proptest::prelude::*;

use super::*;

const TABLES: Tables = Tables { tables: 4, rows: 500 };
const OK: &[u8] = b"\x00\x00\x00\x02\x00\x00\x00";
const CHANGED: &[u8] = b"\x00\x01\x00\x02\x00\x00\x00";

fn sent(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(5..).unwrap_or_default()).into_owned()
}

fn packets(all: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    all.iter().enumerate().for_each(|(number, contents)| packet(number as u8 + 1, contents, &mut bytes));
    bytes
}

/// So many rows of one column.
fn rows(count: usize, value: &[u8]) -> Vec<u8> {
    let row = [&[value.len() as u8], value].concat();
    let mut all: Vec<&[u8]> = vec![b"\x01", b"\x03def", b"\xfe\x00\x00\x02\x00"];
    all.extend(std::iter::repeat_n(row.as_slice(), count));
    all.push(b"\xfe\x00\x00\x02\x00");
    packets(&all)
}

fn settings() -> Vec<u8> {
    SETTINGS.map(|(name, value)| format!("{name} {value}")).join("\n").into_bytes()
}

fn logged_in() -> (Session, Vec<u8>) {
    let (mut session, mut out) = (Session::new(TABLES), Vec::new());
    assert!(!session.open(&mut out) && out.is_empty(), "the server greets");
    assert_eq!(session.receive(&packets(&[b"\x0a11.8.6-MariaDB\0"]), &mut out), Ok(Said::More));
    assert!(out.windows(12).any(|part| part == b"root\0\0sbtest") && out[3] == 2, "{out:?}");
    out.clear();
    assert_eq!(session.receive(&packets(&[OK]), &mut out), Ok(Said::More));
    assert!(sent(&out).contains("innodb_flush_log_at_trx_commit"));
    (session, out)
}

fn opened() -> Session {
    let (mut session, mut out) = logged_in();
    assert_eq!(session.receive(&rows(1, &settings()), &mut out), Ok(Said::Ready));
    session
}

/// What a sound server answers.
fn sound(statement: &str) -> Vec<u8> {
    match statement.split(' ').next() {
        Some("select") if statement.contains("between") && !statement.contains("sum") => rows(100, b"x"),
        Some("select") => rows(1, b"x"),
        Some("begin" | "commit") => packets(&[OK]),
        _ => packets(&[CHANGED]),
    }
}

/// Runs a transaction; gives its statements and what came of it.
fn run(answer: impl Fn(&str) -> Vec<u8>) -> (Vec<String>, Result<Said, Failure>) {
    let (mut session, mut out, mut all) = (opened(), Vec::new(), Vec::new());
    session.request(0, &mut Random::new(5), &mut out);
    loop {
        let statement = sent(&out);
        out.clear();
        all.push(statement.clone());
        match session.receive(&answer(&statement), &mut out) {
            Ok(Said::More) => {}
            other => return (all, other),
        }
    }
}

fn failure(said: Result<Said, Failure>) -> Failure {
    match said {
        Ok(Said::Answered(Answer { failure: Some(failure), reusable: false, .. })) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transaction_has_sysbenchs_statements_and_ends_with_the_commit() {
    let (all, said) = run(sound);
    assert!(matches!(said, Ok(Said::Answered(Answer { failure: None, reusable: true, bytes })) if bytes > 1000));
    let count = |part: &str| all.iter().filter(|statement| statement.contains(part)).count();
    assert_eq!(all.len(), 20);
    assert_eq!((count("where id = "), count("between"), count("sum(k)"), count("order by c")), (13, 4, 1, 2));
    assert_eq!([count("update"), count("delete"), count("insert"), count("distinct")], [2, 1, 1, 1]);
    assert_eq!((all[0].as_str(), all[19].as_str()), ("begin", "commit"));
}

#[test]
fn a_refused_statement_or_a_row_that_is_missing_is_a_failed_transaction() {
    let refused = |statement: &str| match statement.starts_with("delete") {
        true => packets(&[b"\xff\xbd\x04#40001Deadlock found"]),
        false => sound(statement),
    };
    let found = failure(run(refused).1);
    assert!(found.kind == Kind::Refused && found.why.contains("1213") && found.why.contains("Deadlock"), "{found}");
    let lost = |statement: &str| match statement.starts_with("update") {
        true => packets(&[OK]),
        false => sound(statement),
    };
    let found = failure(run(lost).1);
    assert!(found.kind == Kind::WrongAnswer && found.why.contains("0 changed rows"), "{found}");
    let few = |statement: &str| match statement.contains("order by") {
        true => rows(99, b"x"),
        false => sound(statement),
    };
    assert_eq!(failure(run(few).1).kind, Kind::WrongAnswer);
}

#[test]
fn a_server_that_does_not_wait_for_its_drive_is_not_driven() {
    for (from, to) in [("commit 1", "commit 2"), ("O_DIRECT", "fsync"), ("doublewrite ON", "doublewrite OFF")] {
        let said = String::from_utf8(settings()).unwrap().replace(from, to);
        let (mut session, mut out) = logged_in();
        let error = session.receive(&rows(1, said.as_bytes()), &mut out).unwrap_err();
        assert!(error.why.contains("need not be on the drive"), "{error}");
    }
    let (mut session, mut out) = logged_in();
    assert!(session.receive(&rows(0, b""), &mut out).is_err(), "it says nothing");
}

#[test]
fn a_login_that_is_refused_says_why() {
    let mut session = Session::new(TABLES);
    let error = session.receive(&packets(&[b"\xff\x10\x04Too many connections"]), &mut Vec::new()).unwrap_err();
    assert!(error.why.contains("error 1040") && error.why.contains("Too many"), "{error}");
    let mut session = Session::new(TABLES);
    assert!(session.receive(&packets(&[b"SSH-2.0"]), &mut Vec::new()).is_err());
}

#[test]
fn another_way_to_prove_oneself_is_answered_without_a_password() {
    let (mut session, mut out) = (Session::new(TABLES), Vec::new());
    session.receive(&packets(&[b"\x0a11"]), &mut out).unwrap();
    out.clear();
    assert_eq!(session.receive(&packets(&[b"\xfemysql_native_password\0x"]), &mut out), Ok(Said::More));
    assert_eq!(out, [0, 0, 0, 2]);
}

#[test]
fn bytes_nobody_asked_for_and_a_closed_connection_are_failures() {
    assert!(opened().receive(&packets(&[OK]), &mut Vec::new()).is_err());
    assert_eq!(opened().closed().unwrap_err().kind, Kind::Closed);
}

proptest! {
    #[test]
    fn rows_are_in_the_tables_and_locked_in_one_order(seed in any::<u64>(), tables in 1u32..20, rows in 500u32..1_000_000) {
        let all = transaction(Tables { tables, rows }, &mut Random::new(seed));
        let mut locked = Vec::new();
        for statement in all.iter().map(|one| one.words.as_str()) {
            prop_assert!(statement.len() < 400 && !statement.contains(['\n', '\r', '\\', '"']), "{statement}");
            let number = |behind: &str| -> Option<u32> {
                let rest = statement.split_once(behind)?.1;
                rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
            };
            let table = number("sbtest");
            prop_assert!(table.is_none_or(|table| (1..=tables).contains(&table)), "{statement}");
            for row in [number("id = "), number("between "), number(" and ")].into_iter().flatten() {
                prop_assert!((1..=rows).contains(&row), "{statement}");
            }
            if statement.starts_with("update") || statement.starts_with("delete") {
                locked.push((table, number("id = ")));
            }
        }
        prop_assert!(locked.len() == 3 && locked.is_sorted(), "{locked:?}");
    }
}
