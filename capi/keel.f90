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
! - A loss of the host's own is a subroutine as keel_loss below; it looks at arrays by keel_look(), and ends the step by
!   a text in `failure`.
! - Objects are destroyed by hand. A copy of an object is the same object.
module keel
  use, intrinsic :: iso_c_binding, only: c_associated, c_char, c_double, c_f_pointer, c_funloc, c_int, c_int64_t, &
    c_loc, c_null_char, c_null_funptr, c_null_ptr, c_ptr
  use keel_arrays
  use keel_batches
  use keel_c
  use keel_objects
  use keel_views
  implicit none
  private

  public :: keel_settings, keel_context, keel_team, keel_array, keel_batch, keel_last_error, keel_version, keel_export_weights
  public :: keel_view, keel_look, keel_loss
  public :: KEEL_OK, KEEL_ERROR_INPUT, KEEL_ERROR_IO, KEEL_ERROR_NUMERIC, KEEL_ERROR_UNSUPPORTED, &
    KEEL_ERROR_INTERRUPTED, KEEL_ERROR_PEER, KEEL_ERROR_INTERNAL, KEEL_ERROR_MEMORY, KEEL_ERROR_HANDLE

  ! Instead of a learning rate: that of the settings' schedule.
  real(c_double), parameter, public :: KEEL_SCHEDULED = -1

  integer, parameter :: MESSAGE_LENGTH = 256  ! KEEL_MESSAGE

  ! What keel_model's save_poll() gives.
  integer, parameter, public :: KEEL_SAVE_NONE = 0, KEEL_SAVE_UNDER_WAY = 1, KEEL_SAVE_THERE = 2

  abstract interface
    ! See keel_loss_function. Arrays are (features, samples); `weights` has no numbers where each sample weighs 1.
    ! `failure` is blank; what is written there ends the step on all ranks.
    subroutine keel_loss(output, wanted, weights, gradient, loss, failure)
      import :: c_double, keel_view
      type(keel_view), intent(in) :: output(:), wanted(:), weights, gradient(:)
      real(c_double), intent(out) :: loss
      character(*), intent(inout) :: failure
    end subroutine
  end interface

  type :: loss_of_host
    procedure(keel_loss), pointer, nopass :: call => null()
  end type

  type, public :: keel_model
    private
    type(c_ptr) :: handle = c_null_ptr
    type(loss_of_host), pointer :: own_loss => null()
  contains
    procedure :: create => model_create
    procedure :: create_mlp => model_create_mlp
    procedure :: create_text => model_create_text
    procedure :: set_loss => model_set_loss
    procedure :: parameters => model_parameters
    procedure, private :: model_train_step, model_train_batch, model_infer, model_infer_batch
    generic :: train_step => model_train_step, model_train_batch
    procedure :: accumulate => model_accumulate
    procedure :: backward => model_backward
    procedure :: update => model_update
    procedure :: evaluate => model_evaluate
    generic :: infer => model_infer, model_infer_batch
    procedure :: parameter_name => model_parameter_name
    procedure :: parameter_shape => model_parameter_shape
    procedure :: get_weights => model_get_weights
    procedure :: set_weights => model_set_weights
    procedure :: get_gradient => model_get_gradient
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

  ! `inputs` is left out for a text that names its inputs.
  subroutine model_create_text(self, context, text, loss, inputs, settings, stat)
    class(keel_model), intent(inout) :: self
    type(keel_context), intent(in) :: context
    character(*), intent(in) :: text, loss
    integer, intent(in), optional :: inputs
    type(keel_settings), intent(in), optional :: settings
    integer, intent(out), optional :: stat
    integer(c_int64_t) :: numbers

    numbers = 0
    if (present(inputs)) numbers = inputs
    call finish(keel_model_create_text_c(context%handle, handle_of(settings), c_text(text), numbers, c_text(loss), &
      self%handle), stat)
  end subroutine

  ! Without `f`: the model's own loss again.
  subroutine model_set_loss(self, f, stat)
    class(keel_model), intent(inout) :: self
    procedure(keel_loss), optional :: f
    integer, intent(out), optional :: stat

    if (.not. present(f)) then
      call finish(keel_model_loss_c(self%handle, c_null_funptr, c_null_ptr), stat)
      return
    end if
    if (.not. associated(self%own_loss)) allocate (self%own_loss)
    self%own_loss%call => f
    call finish(keel_model_loss_c(self%handle, c_funloc(call_loss), c_loc(self%own_loss)), stat)
  end subroutine

  ! What keel calls, and hands on to the host's subroutine.
  integer(c_int) function call_loss(outputs, output, wanted, weights, gradient, loss, message, user) bind(C)
    integer(c_int), value :: outputs
    type(keel_view), intent(in) :: output(outputs), wanted(outputs), weights, gradient(outputs)
    real(c_double), intent(out) :: loss
    character(kind=c_char), intent(inout) :: message(MESSAGE_LENGTH)
    type(c_ptr), value :: user
    type(loss_of_host), pointer :: host
    character(MESSAGE_LENGTH - 1) :: failure
    integer :: i

    call c_f_pointer(user, host)
    failure = ''
    call host%call(output, wanted, weights, gradient, loss, failure)
    call_loss = merge(0, 1, len_trim(failure) == 0)
    do i = 1, len_trim(failure)
      message(i) = failure(i:i)
    end do
    message(len_trim(failure) + 1) = c_null_char
  end function

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

  subroutine model_train_batch(self, batch, lr, loss, grad_norm, taken, stat)
    class(keel_model), intent(inout) :: self
    type(keel_batch), intent(in) :: batch
    real(c_double), intent(in) :: lr
    real(c_double), intent(out), optional :: loss, grad_norm
    logical, intent(out), optional :: taken
    integer, intent(out), optional :: stat
    real(c_double) :: its_loss, its_norm
    integer(c_int) :: was_taken, status

    status = keel_train_batch_c(self%handle, batch%handle, lr, its_loss, its_norm, was_taken)
    if (status == KEEL_OK) then
      if (present(loss)) loss = its_loss
      if (present(grad_norm)) grad_norm = its_norm
      if (present(taken)) taken = was_taken /= 0
    end if
    call finish(status, stat)
  end subroutine

  ! `last`: of the parts of a step; the gradient is whole then, and update() takes the step.
  subroutine model_backward(self, batch, last, loss, stat)
    class(keel_model), intent(inout) :: self
    type(keel_batch), intent(in) :: batch
    logical, intent(in) :: last
    real(c_double), intent(out), optional :: loss
    integer, intent(out), optional :: stat
    real(c_double) :: its_loss
    integer(c_int) :: status

    status = keel_train_backward_c(self%handle, batch%handle, merge(1_c_int, 0_c_int, last), its_loss)
    if (present(loss) .and. status == KEEL_OK) loss = its_loss
    call finish(status, stat)
  end subroutine

  subroutine model_update(self, lr, grad_norm, taken, stat)
    class(keel_model), intent(inout) :: self
    real(c_double), intent(in) :: lr
    real(c_double), intent(out), optional :: grad_norm
    logical, intent(out), optional :: taken
    integer, intent(out), optional :: stat
    real(c_double) :: its_norm
    integer(c_int) :: was_taken, status

    status = keel_train_update_c(self%handle, lr, its_norm, was_taken)
    if (status == KEEL_OK) then
      if (present(grad_norm)) grad_norm = its_norm
      if (present(taken)) taken = was_taken /= 0
    end if
    call finish(status, stat)
  end subroutine

  subroutine model_evaluate(self, batch, loss, stat)
    class(keel_model), intent(inout) :: self
    type(keel_batch), intent(in) :: batch
    real(c_double), intent(inout) :: loss
    integer, intent(out), optional :: stat
    call finish(keel_evaluate_c(self%handle, batch%handle, loss), stat)
  end subroutine

  subroutine model_infer_batch(self, batch, stat)
    class(keel_model), intent(inout) :: self
    type(keel_batch), intent(in) :: batch
    integer, intent(out), optional :: stat
    call finish(keel_infer_batch_c(self%handle, batch%handle), stat)
  end subroutine

  ! Of the parameter `i`, counted from 1; not allocated behind the last one.
  subroutine model_parameter_name(self, i, name, stat)
    class(keel_model), intent(inout) :: self
    integer, intent(in) :: i
    character(:), allocatable, intent(out) :: name
    integer, intent(out), optional :: stat
    type(c_ptr) :: address
    integer(c_int) :: status

    address = c_null_ptr
    status = keel_parameter_name_c(self%handle, int(i - 1, c_int64_t), address)
    if (status == KEEL_OK .and. c_associated(address)) name = text_at(address)
    call finish(status, stat)
  end subroutine

  ! In Fortran's order: (inputs, outputs) of a linear layer.
  subroutine model_parameter_shape(self, name, extents, stat)
    class(keel_model), intent(inout) :: self
    character(*), intent(in) :: name
    integer(c_int64_t), allocatable, intent(out) :: extents(:)
    integer, intent(out), optional :: stat
    integer(c_int64_t) :: its(8)
    integer(c_int) :: rank, status

    status = keel_parameter_shape_c(self%handle, c_text(name), rank, its)
    if (status == KEEL_OK) extents = its(rank:1:-1)
    call finish(status, stat)
  end subroutine

  subroutine model_get_weights(self, name, array, stat)
    class(keel_model), intent(inout) :: self
    character(*), intent(in) :: name
    type(keel_array), intent(in) :: array
    integer, intent(out), optional :: stat
    call finish(keel_get_weights_c(self%handle, c_text(name), array%handle), stat)
  end subroutine

  subroutine model_set_weights(self, name, array, stat)
    class(keel_model), intent(inout) :: self
    character(*), intent(in) :: name
    type(keel_array), intent(in) :: array
    integer, intent(out), optional :: stat
    call finish(keel_set_weights_c(self%handle, c_text(name), array%handle), stat)
  end subroutine

  subroutine model_get_gradient(self, name, array, stat)
    class(keel_model), intent(inout) :: self
    character(*), intent(in) :: name
    type(keel_array), intent(in) :: array
    integer, intent(out), optional :: stat
    call finish(keel_get_gradient_c(self%handle, c_text(name), array%handle), stat)
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
    if (associated(self%own_loss)) deallocate (self%own_loss)
  end subroutine

end module keel
