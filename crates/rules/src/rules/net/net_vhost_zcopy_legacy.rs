//! vhost-net zero-copy transmit is left at its default (off).

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "net-vhost-zcopy-legacy",
    layer: Layer::Net,
    title: "vhost-net zero-copy transmit is left at its default (off)",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["/sys/module/vhost_net/parameters/experimental_zcopytx"],
    good: "0 unless the load is large-packet guest-to-outside and has been measured",
    applies: "large-packet TX to the wire",
    not_applies: "guest-to-guest or guest-to-host traffic (regresses)",
    effect: "RHEL 7 guide: up to 15% less host CPU for large packets",
    evidence: Evidence::A,
    sources: &["rh-zcopy"],
    fix: Fix {
        live: None,
        persistent: "options vhost_net experimental_zcopytx=1",
        needs: &[Need::ModuleReload],
        undo: "stalls with guest-to-guest traffic; undo 0",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    if context.host.is_none() {
        return Outcome::no_host();
    }
    const NAME: &str = "vhost_net.experimental_zcopytx";
    // The module is loaded with the first guest that needs it.
    let Some(value) = context.module_parameter(NAME) else { return Outcome::NotApplicable };
    let cure = Cure::ModuleParameter {
        module: "vhost_net".to_owned(),
        parameter: "experimental_zcopytx".to_owned(),
        value: "0".to_owned(),
    };
    let found = format!("{value}: guest-to-guest packets wait for their buffers");
    Outcome::one((value != "0").then(|| Object::new(NAME, found, "0, the default").cured_by(cure)))
}
