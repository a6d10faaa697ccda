//! Parameters of modules that count only when the module is loaded.

use nearmetal_host::Setting;

use crate::context::Context;
use crate::cure::Cure;

/// Switches a parameter on, and takes off the kernel command line what may switch it off there.
pub(crate) fn switch_on(context: &Context<'_>, setting: &Setting) -> Vec<Cure> {
    let Some((module, parameter)) = setting.name.split_once('.') else { return Vec::new() };
    // As the kernel will spell it: tools that check a setting compare texts.
    let value = if setting.value.trim() == "0" { "1" } else { "Y" };
    let set =
        Cure::ModuleParameter { module: module.to_owned(), parameter: parameter.to_owned(), value: value.to_owned() };
    // The kernel takes a dash for an underscore.
    let names = [setting.name.clone(), format!("{}.{parameter}", module.replace('_', "-"))];
    let given = names.into_iter().filter(|name| context.kernel_parameter(name).is_some());
    [set].into_iter().chain(given.map(|name| Cure::NoKernelArgument { name })).collect()
}
