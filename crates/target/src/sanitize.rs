//! SANITIZE (SBC-4 §4.11): every block of a unit is unmapped or overwritten, and nobody uses the
//! unit meanwhile.
//!
//! The operation is not a part of the command that began it: it goes on when the command is
//! aborted, the unit is reset or the session ends. Only the end of the process ends it: it is not
//! resumed, and the unit has failed when it is served again.
//!
//! Invariants:
//! 1. At most one operation of a unit runs.
//! 2. No write that was let in before an operation began ends after its first change.
//! 3. An operation that does not reach its end leaves the unit failed, after a restart too: that it
//!    has begun is hardened before its first change, and that it has ended after its last one.

use crate::{
    Request,
    nexus::parameter_list,
    sanitizing::Phase,
    settings::{Completion, Settings},
    unit::UnitState,
};
use quoin_base::{ByteRange, MIB};
use quoin_scsi::{Overwrite, Reply, Sanitize, SanitizeAction, Sense};
use quoin_volume::{BlockDevice, DeviceError};
use quoin_world::{Buf, Slice, Task};
use std::sync::Arc;

/// What one request unmaps.
const UNMAP_BYTES: u64 = 64 * MIB;
/// What one request writes.
const WRITE_BYTES: u64 = MIB;

/// What is done to every block.
enum Work {
    Erase,
    Overwrite(Overwrite),
}

/// An operation that runs. The unit has failed if it is dropped before it has ended.
struct Operation<D> {
    device: Arc<D>,
    state: Arc<UnitState>,
    work: Work,
    /// The contents that the host meant.
    contents: u64,
    outcome: Phase,
}

impl<D> Drop for Operation<D> {
    fn drop(&mut self) {
        self.state.sanitizing.set(self.outcome);
    }
}

impl<D: BlockDevice> Operation<D> {
    async fn run(mut self) {
        let volume = self.device.name();
        tracing::info!(volume, "a host has the volume sanitized");
        if let Err(error) = self.all().await {
            tracing::warn!(volume, %error, "the volume is not sanitized: hosts are kept out");
        } else if let Err(sense) = self.note_end().await {
            tracing::warn!(
                volume,
                ?sense,
                "it cannot be hardened that a SANITIZE has ended: hosts are kept out"
            );
        } else {
            self.outcome = Phase::Idle;
            tracing::info!(volume, "the volume is sanitized");
        }
    }

    /// Hardens that the operation has come to its end.
    async fn note_end(&self) -> Result<(), Sense> {
        let _turn = self.state.changing.lock().await;
        let settings = Settings { sanitize: None, ..self.state.settings() };
        self.state.keep(&*self.device, settings).await
    }

    async fn all(&self) -> Result<(), DeviceError> {
        let Work::Overwrite(overwrite) = &self.work else { return self.pass(None, 0, 1).await };
        for pass in 0..overwrite.passes {
            let block = overwrite.block(pass, self.device.block_bytes());
            // Zeroes are not stored.
            let block = Some(block).filter(|block| block.iter().any(|byte| *byte != 0));
            self.pass(block, pass.into(), overwrite.passes.into()).await?;
        }
        Ok(())
    }

    /// Writes a block everywhere, or unmaps everything, as one of so many passes.
    async fn pass(&self, block: Option<Vec<u8>>, pass: u64, passes: u64) -> Result<(), DeviceError> {
        let repeated = block.map(|block| {
            let mut repeated = Buf::zeroed(WRITE_BYTES as usize);
            repeated.as_mut_slice().chunks_mut(block.len()).for_each(|chunk| chunk.copy_from_slice(&block));
            repeated.into_slice()
        });
        let step = if repeated.is_some() { WRITE_BYTES } else { UNMAP_BYTES };
        let mut at = 0;
        loop {
            // NOTE: asked for each time: the volume may change its size, or its content be
            // replaced.
            let size_bytes = self.device.size_bytes();
            if self.device.contents() != self.contents {
                return Err(DeviceError::Replaced { volume: self.device.name() });
            }
            if at >= size_bytes {
                return Ok(());
            }
            let len = step.min(size_bytes - at);
            match &repeated {
                Some(repeated) => self.device.write(at, vec![repeated.slice(..len as usize)]).await?,
                None => self.device.unmap(ByteRange::new(at, len)).await?,
            }
            at += len;
            self.state.sanitizing.note_progress(pass * size_bytes + at, passes * size_bytes);
        }
    }
}

impl<D: BlockDevice> Request<D> {
    /// SANITIZE.
    pub(crate) async fn sanitize(&self, request: Sanitize, data: &[Slice]) -> Reply {
        match self.try_sanitize(request, data).await {
            Ok(Some(())) => Reply { wanted_bytes: request.parameter_bytes.into(), ..Reply::good() },
            Ok(None) => Reply::conflict(),
            Err(sense) => Reply::check(sense),
        }
    }

    /// Returns `None` if a reservation keeps the nexus out.
    async fn try_sanitize(&self, request: Sanitize, data: &[Slice]) -> Result<Option<()>, Sense> {
        let (state, device) = (&self.unit.state, &self.unit.device);
        let work = match request.action {
            SanitizeAction::Overwrite => {
                let list = parameter_list(request.parameter_bytes.into(), data)?;
                Some(Work::Overwrite(Overwrite::parse(&list, device.block_bytes())?))
            }
            SanitizeAction::BlockErase => Some(Work::Erase),
            SanitizeAction::ExitFailureMode => None,
        };
        let turn = state.changing.lock().await;
        // NOTE: looked at in turn: since the command was admitted another may have begun, or
        // somebody reserved the unit.
        if !state.lets(&self.nexus.it_nexus, self.command.needs()) {
            return Ok(None);
        }
        if let Some(sense) = state.sanitizing.refusal_of_another(&request) {
            return Err(sense);
        }
        let settings = state.settings();
        let Some(work) = work else {
            state.keep(&**device, Settings { sanitize: None, ..settings }).await?;
            state.sanitizing.set(Phase::Idle);
            return Ok(Some(()));
        };
        self.check_unit()?;
        // NOTE: hardened before anything is changed, or answered.
        let completion = Completion::of(request.unrestricted);
        state.keep(&**device, Settings { sanitize: Some(completion), ..settings }).await?;
        let waits = (!request.immediate).then_some(self.nexus.id);
        state.sanitizing.set(Phase::Running { progress: 0, waits });
        drop(turn);
        // What cannot go on by itself ends before it is answered, whatever IMMED says.
        let is_apart = match self.target.carry_on(self.operation(work, completion)) {
            Ok(()) => true,
            Err(task) => {
                task.await;
                false
            }
        };
        if request.immediate && is_apart {
            return Ok(Some(()));
        }
        state.sanitizing.end(self.nexus.id).await.map(Some)
    }

    /// Refuses another medium than the host meant, and one that is write-protected by now.
    fn check_unit(&self) -> Result<(), Sense> {
        if self.unit.device.contents() != self.contents {
            return Err(Sense::MEDIUM_MAY_HAVE_CHANGED);
        }
        self.unit.unit(&self.nexus.port).check_protection(&self.command)
    }

    /// The operation, once the unit is said to run one.
    fn operation(&self, work: Work, completion: Completion) -> Task {
        let operation = Operation {
            device: self.unit.device.clone(),
            state: self.unit.state.clone(),
            work,
            contents: self.contents,
            outcome: Phase::Failed(completion),
        };
        Box::pin(async move {
            {
                let state = operation.state.clone();
                let _turn = state.changing.lock().await;
                // No command comes in any more. Those that came in before are waited for.
                state.settle().await;
            }
            operation.run().await;
        })
    }
}
