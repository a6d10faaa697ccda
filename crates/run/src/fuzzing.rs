//! The parsers of what comes from outside, for `examples/fuzz.rs`. No interface.

use crate::flavour::{EXAMPLE, Flavours};
use crate::given;
use crate::reservation::Said;
use crate::service::{Frames, FromUser, Request, SCHEMA, fuzzed_status, receive};

/// A name, an input that is understood, and the parser.
pub type Parser = (&'static str, Vec<u8>, fn(&str));

/// Every parser of this crate.
pub fn fuzz_targets() -> Vec<Parser> {
    let small = "[[flavour]]\nname = \"a\"\nvcpus = 2\nmemory = \"2 GiB\"\nboot = \"kernel\"\nkernel = \"/k\"\ngrace = \"5s\"\n\
        function = \"eth0\"\n";
    let status = "Name:\tx\nCpus_allowed_list:\t0-3,8\nMems_allowed_list:\t0-1\n";
    let reservation = "{\"schema\":\"nearmetal.reservation/2\",\"name\":\"run-a-1\",\"uuid\":\"u\",\"flavour\":\"a\",\"pid\":7,\
        \"since\":\"2026\",\"cpus\":\"1-2\",\"memory\":[{\"node\":0,\"bytes\":7}],\"limits\":[],\"page_size\":null,\"image\":null,\
        \"functions\":[{\"function\":\"0000:39:10.0\",\"id\":\"0x8086:0x10ca\",\"driver\":\"igbvf\",\"only\":null}],\"pools\":[]}\n";
    let flavours = |text: &str| match Flavours::parse("fuzz", text) {
        Ok(flavours) => drop(flavours.find("a")),
        Err(errors) => {
            assert!(!errors.problems.is_empty());
            let lines = text.matches('\n').count() + 1;
            assert!(errors.problems.iter().all(|problem| problem.line <= lines && problem.column > 0));
            drop(errors.to_string());
        }
    };
    let request = format!(
        "{{\"schema\":\"{SCHEMA}\",\"flavour\":\"a\",\"image\":null,\"user_data\":true,\"meta_data\":null,\
         \"time_limit\":60,\"quiet\":false,\"command\":[\"true\"]}}"
    );
    let wire = |request: &str| {
        let mut wire = Vec::new();
        for frame in [FromUser::Request(request.into()), FromUser::UserData(vec![b'x'; 9]), FromUser::Signal(15)] {
            drop(frame.send(&mut wire));
        }
        wire
    };
    vec![
        ("flavours file", EXAMPLE.into(), flavours),
        ("small flavours file", small.into(), flavours),
        ("allowed PUs and nodes", status.into(), |text| drop(given::allowed(text))),
        ("control groups above", "0::/a/b\n4:cpu,memory:/c\n".into(), |text| {
            drop(given::groups_above(text, "/sys/fs/cgroup"))
        }),
        ("limit of memory", "1073741824\n".into(), |text| drop(given::limit(text))),
        ("reservation", reservation.into(), |text| drop(Said::parse(text))),
        ("what a user sends to the service", wire(&request), |text| {
            let mut rest = text.as_bytes();
            while let Ok(frame) = receive::<FromUser>(&mut rest) {
                if let FromUser::Request(bytes) = frame {
                    drop(Request::parse(&bytes));
                }
            }
        }),
        ("a request", request.clone().into(), |text| drop(Request::parse(text.as_bytes()))),
        ("whose a process is", "Uid:\t7\t7\t7\t7\nGroups:\t5 27\n".into(), |text| drop(fuzzed_status(text))),
    ]
}
