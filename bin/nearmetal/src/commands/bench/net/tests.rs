//! Which tests are run, by the words of `--test`.

use nearmetal_load::NetTest;

/// The tests of a list or a race.
#[derive(Debug, clap::Args)]
pub(super) struct TestArgs {
    // Its help lists them: see `test_help`.
    #[arg(long, value_name = "TEST", value_parser = test, help = test_help())]
    test: Vec<NetTest>,
}

impl TestArgs {
    /// Each once, in the order given; the first decides the race.
    pub(super) fn tests(&self) -> Vec<NetTest> {
        let mut tests: Vec<NetTest> = Vec::new();
        for test in if self.test.is_empty() { &NetTest::DEFAULT[..] } else { &self.test[..] } {
            if !tests.contains(test) {
                tests.push(*test);
            }
        }
        tests
    }
}

fn test_help() -> String {
    let words = |tests: &[NetTest]| tests.iter().map(|test| test.id()).collect::<Vec<_>>().join(", ");
    format!(
        "What is run, of {}; repeat it for more. The first decides the race [default: {}]",
        words(&NetTest::ALL),
        words(&NetTest::DEFAULT)
    )
}

/// A test by its id.
pub(in super::super) fn test(text: &str) -> Result<NetTest, String> {
    NetTest::ALL
        .into_iter()
        .find(|test| test.id() == text)
        .ok_or_else(|| format!("there is no test `{text}`: write one of {}", NetTest::ALL.map(NetTest::id).join(", ")))
}
