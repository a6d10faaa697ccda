//! XSLT 1.0, as much of it as a plan needs.

/// A stylesheet that copies what no template names.
pub(super) struct Sheet {
    text: String,
}

/// A child that an element shall have.
pub(super) struct Child {
    /// XPath: when it is made.
    pub(super) when: String,
    /// It stands behind the last of these, or first.
    pub(super) behind: Vec<&'static str>,
    /// The element, or several.
    pub(super) xml: String,
}

impl Sheet {
    pub(super) fn new(comment: &str) -> Self {
        Self {
            text: format!(
                r#"<?xml version="1.0" encoding="UTF-8"?>
<!-- {comment} -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:output method="xml" encoding="UTF-8" indent="yes" omit-xml-declaration="yes"/>
  <xsl:strip-space elements="domain devices cputune numatune memoryBacking cpu numa disk interface"/>
  <xsl:template match="@*|node()">
    <xsl:copy><xsl:apply-templates select="@*|node()"/></xsl:copy>
  </xsl:template>
"#
            ),
        }
    }

    /// A template with this body.
    pub(super) fn template(&mut self, pattern: &str, body: &str) {
        let pattern = attribute(pattern);
        if body.is_empty() {
            self.text.push_str(&format!("  <xsl:template match=\"{pattern}\"/>\n"));
        } else {
            self.text.push_str(&format!("  <xsl:template match=\"{pattern}\">\n    {body}\n  </xsl:template>\n"));
        }
    }

    /// Elements that keep what they have but these attributes, and have these children besides. `first` is done before.
    pub(super) fn element(
        &mut self,
        pattern: &str,
        first: &str,
        attributes: &[(&str, Option<String>)],
        children: &[Child],
    ) {
        let names = attributes.iter().map(|(name, _)| format!("name()='{name}'")).collect::<Vec<_>>().join(" or ");
        let kept = if names.is_empty() { "@*".to_owned() } else { format!("@*[not({names})]") };
        let mut body = format!("{first}<xsl:copy>\n      <xsl:apply-templates select=\"{kept}\"/>");
        for (name, value) in attributes {
            if let Some(value) = value {
                let value = text(value);
                body.push_str(&format!("\n      <xsl:attribute name=\"{name}\">{value}</xsl:attribute>"));
            }
        }
        if children.is_empty() {
            body.push_str("\n      <xsl:apply-templates select=\"node()\"/>\n    </xsl:copy>");
            return self.template(pattern, &body);
        }
        for (number, child) in children.iter().enumerate() {
            let found = match child.behind.is_empty() {
                true => "''".to_owned(),
                false => format!("generate-id(({})[last()])", child.behind.join("|")),
            };
            body.push_str(&format!("\n      <xsl:variable name=\"behind{number}\" select=\"{found}\"/>"));
            body.push_str(&format!(
                "\n      <xsl:variable name=\"wanted{number}\" select=\"{}\"/>",
                attribute(&child.when)
            ));
        }
        for (number, child) in children.iter().enumerate() {
            body.push_str(&format!(
                "\n      <xsl:if test=\"$wanted{number} and $behind{number} = ''\">{}</xsl:if>",
                child.xml
            ));
        }
        body.push_str("\n      <xsl:for-each select=\"node()\">\n        <xsl:apply-templates select=\".\"/>");
        for (number, child) in children.iter().enumerate() {
            body.push_str(&format!(
                "\n        <xsl:if test=\"$wanted{number} and $behind{number} = generate-id()\">{}</xsl:if>",
                child.xml
            ));
        }
        body.push_str("\n      </xsl:for-each>\n    </xsl:copy>");
        self.template(pattern, &body);
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</xsl:stylesheet>\n");
        self.text
    }
}

/// Ends the transform with a message where a test holds.
pub(super) fn stop(test: &str, message: &str) -> String {
    let (test, message) = (attribute(test), text(message));
    format!("<xsl:if test=\"{test}\"><xsl:message terminate=\"yes\">nearmetal: {message}</xsl:message></xsl:if>\n    ")
}

/// A text as an XPath 1.0 string, which has no escapes: quotes of one kind stand between those of the other.
pub(super) fn literal(value: &str) -> String {
    if !value.contains('\'') {
        return format!("'{value}'");
    }
    let parts = value.split('\'').map(|part| format!("'{part}'")).collect::<Vec<_>>().join(", \"'\", ");
    format!("concat({parts})")
}

/// A text between double quotes.
pub(super) fn attribute(value: &str) -> String {
    text(value).replace('"', "&quot;")
}

/// A text between tags.
pub(super) fn text(value: &str) -> String {
    value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_of_xpath_has_any_quotes() {
        assert_eq!(literal("web1"), "'web1'");
        assert_eq!(literal("a\"b"), "'a\"b'");
        assert_eq!(literal("a'b\"c"), "concat('a', \"'\", 'b\"c')");
    }
}
