! Arrays for a model with several inputs and outputs, of the module keel.
module keel_batches
  use, intrinsic :: iso_c_binding, only: c_char, c_loc, c_null_ptr, c_ptr
  use keel_arrays
  use keel_c
  use keel_objects
  implicit none
  private

  type, public :: keel_batch
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => batch_create
    procedure :: input => batch_input
    procedure :: target => batch_target
    procedure :: weights => batch_weights
    procedure :: destroy => batch_destroy
  end type

contains

  subroutine batch_create(self, context, stat)
    class(keel_batch), intent(inout) :: self
    type(keel_context), intent(in) :: context
    integer, intent(out), optional :: stat
    call finish(keel_batch_create_c(context%handle, self%handle), stat)
  end subroutine

  ! Without a name: the next input in the model's order.
  subroutine batch_input(self, array, name, stat)
    class(keel_batch), intent(inout) :: self
    type(keel_array), intent(in) :: array
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(kind=c_char, len=:), allocatable, target :: text

    if (present(name)) then
      text = c_text(name)
      call finish(keel_batch_input_c(self%handle, c_loc(text), array%handle), stat)
    else
      call finish(keel_batch_input_c(self%handle, c_null_ptr, array%handle), stat)
    end if
  end subroutine

  subroutine batch_target(self, array, name, stat)
    class(keel_batch), intent(inout) :: self
    type(keel_array), intent(in) :: array
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(kind=c_char, len=:), allocatable, target :: text

    if (present(name)) then
      text = c_text(name)
      call finish(keel_batch_target_c(self%handle, c_loc(text), array%handle), stat)
    else
      call finish(keel_batch_target_c(self%handle, c_null_ptr, array%handle), stat)
    end if
  end subroutine

  subroutine batch_weights(self, array, stat)
    class(keel_batch), intent(inout) :: self
    type(keel_array), intent(in) :: array
    integer, intent(out), optional :: stat
    call finish(keel_batch_weights_c(self%handle, array%handle), stat)
  end subroutine

  subroutine batch_destroy(self, stat)
    class(keel_batch), intent(inout) :: self
    integer, intent(out), optional :: stat
    call finish(keel_batch_destroy_c(self%handle), stat)
  end subroutine

end module keel_batches
