//! The little that [`super::Fake`] must know of domain XML.

use quick_xml::Reader;
use quick_xml::events::Event;

use crate::HypervisorError;

/// Name and UUID of a domain.
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) uuid: Option<String>,
}

fn refused(message: String) -> HypervisorError {
    // The numbers libvirt gives for XML it cannot read: VIR_FROM_DOMAIN and VIR_ERR_XML_ERROR.
    HypervisorError::Refused { action: "read".into(), name: "domain XML".into(), domain: 20, code: 27, message }
}

/// Reads `<name>` and `<uuid>` directly below the root.
pub(super) fn identity(xml: &str) -> Result<Identity, HypervisorError> {
    let mut reader = Reader::from_str(xml);
    let (mut path, mut name, mut uuid) = (Vec::new(), None, None);
    loop {
        match reader.read_event().map_err(|error| refused(error.to_string()))? {
            Event::Start(element) => path.push(element.name().as_ref().to_vec()),
            Event::End(_) => {
                path.pop();
            }
            Event::Text(text) => {
                let text = text.decode().map_err(|error| refused(error.to_string()))?.trim().to_owned();
                match path.iter().map(Vec::as_slice).collect::<Vec<_>>().as_slice() {
                    [b"domain", b"name"] => name = Some(text),
                    [b"domain", b"uuid"] => uuid = Some(text),
                    _ => {}
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    match name {
        Some(name) => Ok(Identity { name, uuid }),
        None => Err(refused("missing domain name".into())),
    }
}

/// A UUID made from the name: the same in every run of a test.
pub(super) fn uuid_for(name: &str) -> String {
    let hash =
        |seed: u64| name.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let (high, low) = (hash(0xcbf2_9ce4_8422_2325), hash(0x8422_2325_cbf2_9ce4));
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    )
}

/// The XML with a UUID after the name.
pub(super) fn with_uuid(xml: &str, uuid: &str) -> String {
    xml.replacen("</name>", &format!("</name>\n  <uuid>{uuid}</uuid>"), 1)
}

/// The XML with that element for a namespace in `<metadata>`, in place of the one that was there.
pub(super) fn with_metadata(xml: &str, namespace: &str, prefix: &str, element: Option<&str>) -> String {
    let mut text = xml.to_owned();
    if let Some(place) = text.find(namespace) {
        let start = text[..place].rfind('<').unwrap_or(place);
        let name: String = text[start + 1..].chars().take_while(|c| !c.is_whitespace()).collect();
        let close = format!("</{name}>");
        let end = text[start..].find(&close).map_or(text.len(), |end| start + end + close.len());
        text.replace_range(start..end, "");
    }
    let Some(element) = element else { return text };
    let (name, rest) = element.trim_start_matches('<').split_once('>').unwrap_or((element, ""));
    let content = rest.trim_end_matches(&format!("</{name}>")).to_owned();
    let named = format!("{prefix}:{name}");
    let element = format!("<{named} xmlns:{prefix}='{namespace}'>{content}</{named}>");
    match text.contains("<metadata>") {
        true => text.replacen("<metadata>", &format!("<metadata>{element}"), 1),
        false => text.replacen("</name>", &format!("</name><metadata>{element}</metadata>"), 1),
    }
}

/// The XML of a running instance.
pub(super) fn with_id(xml: &str, id: u32) -> String {
    xml.replacen("<domain ", &format!("<domain id='{id}' "), 1)
}
