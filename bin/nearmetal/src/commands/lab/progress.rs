//! A lab's progress as a bar on terminals, as lines elsewhere.

use indicatif::ProgressBar;
use nearmetal_lab::Progress;

use crate::printer::Printer;

pub(crate) struct Drawn<'a> {
    printer: &'a mut Printer,
    bar: ProgressBar,
}

impl<'a> Drawn<'a> {
    pub(crate) fn new(printer: &'a mut Printer) -> Self {
        let bar = printer.progress(1, "");
        bar.enable_steady_tick(std::time::Duration::from_millis(250));
        Self { printer, bar }
    }
}

impl Progress for Drawn<'_> {
    fn stage(&mut self, number: usize, count: usize, title: &str) {
        if self.bar.is_hidden() {
            self.printer.say(&format!("[{number}/{count}] {title}"));
            return;
        }
        self.bar.set_length(count as u64);
        self.bar.set_position(number.saturating_sub(1) as u64);
        self.bar.set_message(title.to_owned());
    }

    fn note(&mut self, text: &str) {
        let printer = &mut *self.printer;
        self.bar.suspend(|| printer.say(text));
    }
}

impl Drop for Drawn<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
