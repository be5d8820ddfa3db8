//! Ctrl-C: the first ends the run cleanly, the second at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use operator::infer::CancelFlag;

/// What a shell expects of a command that an interrupt ended.
const EXIT_INTERRUPTED: i32 = 130;

/// Sets the flag at the first interrupt and leaves at the second, which waits for nothing: answers that
/// were told are on disk by then.
///
/// # Errors
/// Where the system takes no handler.
pub(super) fn watch(cancel: &Arc<CancelFlag>) -> anyhow::Result<()> {
    let (flag, again) = (Arc::clone(cancel), AtomicBool::new(false));
    ctrlc::set_handler(move || {
        if again.swap(true, Ordering::AcqRel) {
            std::process::exit(EXIT_INTERRUPTED);
        }
        flag.cancel();
        eprintln!(
            "\nstopping: the forward under way is finished and what is decided is kept; once more stops \
             at once"
        );
    })?;
    Ok(())
}
