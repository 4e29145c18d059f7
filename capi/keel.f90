! keel from Fortran: a model that learns from the memory of another code, in its processes, while that code runs.
!
! The module over capi/keel.h, whose comments say what each function does, who calls it, and when. What is different:
!
! - Every subroutine ends with the optional argument `stat`, as `allocate` has it: one of the KEEL_ERROR_... below, or
!   KEEL_OK; keel_last_error() is the message. Without `stat` an error ends the program with its message.
! - A communicator is an integer, as `use mpi` has it (with `use mpi_f08`: comm%mpi_val).
! - An array is bound to memory of the host's, real(4), real(8), integer(4) or integer(8), which must have the attribute
!   `target` and stay where it is. Sections with gaps are fine, and nothing is copied. Dimensions turn round:
!   a(features, samples) here is what (samples, features) is in keel.h, the same numbers in the same order.
! - Objects are destroyed by hand. A copy of an object is the same object.
module keel
  use, intrinsic :: iso_c_binding, only: c_double, c_int, c_int64_t, c_null_ptr, c_ptr
  use keel_arrays
  use keel_c
  use keel_objects
  implicit none
  private

  public :: keel_settings, keel_context, keel_array, keel_last_error, keel_version, keel_export_weights
  public :: KEEL_OK, KEEL_ERROR_INPUT, KEEL_ERROR_IO, KEEL_ERROR_NUMERIC, KEEL_ERROR_UNSUPPORTED, &
    KEEL_ERROR_INTERRUPTED, KEEL_ERROR_PEER, KEEL_ERROR_INTERNAL, KEEL_ERROR_MEMORY, KEEL_ERROR_HANDLE

  ! Instead of a learning rate: that of the settings' schedule.
  real(c_double), parameter, public :: KEEL_SCHEDULED = -1

  ! What keel_model's save_poll() gives.
  integer, parameter, public :: KEEL_SAVE_NONE = 0, KEEL_SAVE_UNDER_WAY = 1, KEEL_SAVE_THERE = 2

  type, public :: keel_model
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => model_create
    procedure :: create_mlp => model_create_mlp
    procedure :: parameters => model_parameters
    procedure :: train_step => model_train_step
    procedure :: accumulate => model_accumulate
    procedure :: infer => model_infer
    procedure :: save => model_save
    procedure :: save_begin => model_save_begin
    procedure :: save_poll => model_save_poll
    procedure :: save_finish => model_save_finish
    procedure :: load => model_load
    procedure :: load_weights => model_load_weights
    procedure :: destroy => model_destroy
  end type

contains

  subroutine keel_version(major, minor, patch)
    integer, intent(out) :: major, minor, patch
    call finish(keel_version_c(major, minor, patch))
  end subroutine

  subroutine keel_export_weights(folder, file, stat)
    character(*), intent(in) :: folder, file
    integer, intent(out), optional :: stat
    call finish(keel_export_weights_c(c_text(folder), c_text(file)), stat)
  end subroutine

  subroutine model_create(self, context, settings, stat)
    class(keel_model), intent(inout) :: self
    type(keel_context), intent(in) :: context
    type(keel_settings), intent(in), optional :: settings
    integer, intent(out), optional :: stat
    call finish(keel_model_create_c(context%handle, handle_of(settings), self%handle), stat)
  end subroutine

  subroutine model_create_mlp(self, context, widths, activation, loss, settings, stat)
    class(keel_model), intent(inout) :: self
    type(keel_context), intent(in) :: context
    integer, intent(in) :: widths(:)
    character(*), intent(in) :: activation, loss
    type(keel_settings), intent(in), optional :: settings
    integer, intent(out), optional :: stat
    call finish(keel_model_create_mlp_c(context%handle, handle_of(settings), int(widths, c_int64_t), size(widths), &
      c_text(activation), c_text(loss), self%handle), stat)
  end subroutine

  subroutine model_parameters(self, n, stat)
    class(keel_model), intent(inout) :: self
    integer(c_int64_t), intent(out) :: n
    integer, intent(out), optional :: stat
    call finish(keel_model_parameters_c(self%handle, n), stat)
  end subroutine

  ! `target_`: what the model shall answer.
  subroutine model_train_step(self, input, target_, lr, loss, grad_norm, taken, stat)
    class(keel_model), intent(inout) :: self
    type(keel_array), intent(in) :: input, target_
    real(c_double), intent(in) :: lr
    real(c_double), intent(out), optional :: loss, grad_norm
    logical, intent(out), optional :: taken
    integer, intent(out), optional :: stat
    real(c_double) :: its_loss, its_norm
    integer(c_int) :: was_taken, status

    status = keel_train_step_c(self%handle, input%handle, target_%handle, lr, its_loss, its_norm, was_taken)
    if (status == KEEL_OK) then
      if (present(loss)) loss = its_loss
      if (present(grad_norm)) grad_norm = its_norm
      if (present(taken)) taken = was_taken /= 0
    end if
    call finish(status, stat)
  end subroutine

  subroutine model_accumulate(self, input, target_, loss, stat)
    class(keel_model), intent(inout) :: self
    type(keel_array), intent(in) :: input, target_
    real(c_double), intent(out), optional :: loss
    integer, intent(out), optional :: stat
    real(c_double) :: its_loss
    integer(c_int) :: status

    status = keel_train_accumulate_c(self%handle, input%handle, target_%handle, its_loss)
    if (present(loss) .and. status == KEEL_OK) loss = its_loss
    call finish(status, stat)
  end subroutine

  subroutine model_infer(self, input, output, stat)
    class(keel_model), intent(inout) :: self
    type(keel_array), intent(in) :: input, output
    integer, intent(out), optional :: stat
    call finish(keel_infer_c(self%handle, input%handle, output%handle), stat)
  end subroutine

  subroutine model_save(self, folder, stat)
    class(keel_model), intent(inout) :: self
    character(*), intent(in) :: folder
    integer, intent(out), optional :: stat
    call finish(keel_model_save_c(self%handle, c_text(folder)), stat)
  end subroutine

  subroutine model_save_begin(self, folder, stat)
    class(keel_model), intent(inout) :: self
    character(*), intent(in) :: folder
    integer, intent(out), optional :: stat
    call finish(keel_model_save_begin_c(self%handle, c_text(folder)), stat)
  end subroutine

  ! `state`: one of the KEEL_SAVE_... above.
  subroutine model_save_poll(self, state, stat)
    class(keel_model), intent(inout) :: self
    integer, intent(out) :: state
    integer, intent(out), optional :: stat
    integer(c_int) :: its_state, status

    its_state = KEEL_SAVE_NONE
    status = keel_model_save_poll_c(self%handle, its_state)
    state = its_state
    call finish(status, stat)
  end subroutine

  subroutine model_save_finish(self, stat)
    class(keel_model), intent(inout) :: self
    integer, intent(out), optional :: stat
    call finish(keel_model_save_finish_c(self%handle), stat)
  end subroutine

  subroutine model_load(self, folder, stat)
    class(keel_model), intent(inout) :: self
    character(*), intent(in) :: folder
    integer, intent(out), optional :: stat
    call finish(keel_model_load_c(self%handle, c_text(folder)), stat)
  end subroutine

  subroutine model_load_weights(self, file, stat)
    class(keel_model), intent(inout) :: self
    character(*), intent(in) :: file
    integer, intent(out), optional :: stat
    call finish(keel_model_load_weights_c(self%handle, c_text(file)), stat)
  end subroutine

  subroutine model_destroy(self, stat)
    class(keel_model), intent(inout) :: self
    integer, intent(out), optional :: stat
    call finish(keel_model_destroy_c(self%handle), stat)
  end subroutine

end module keel
