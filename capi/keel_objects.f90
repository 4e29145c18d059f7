! Settings, contexts and errors of the module keel, whose header says how they are used. Components are not for hosts.
module keel_objects
  use, intrinsic :: iso_c_binding, only: c_char, c_double, c_f_pointer, c_funptr, c_int, c_int64_t, c_null_char, &
    c_null_ptr, c_ptr
  use keel_c
  implicit none
  private

  integer, parameter, public :: KEEL_OK = 0, KEEL_ERROR_INPUT = 1, KEEL_ERROR_IO = 2, KEEL_ERROR_NUMERIC = 3, &
    KEEL_ERROR_UNSUPPORTED = 4, KEEL_ERROR_INTERRUPTED = 5, KEEL_ERROR_PEER = 6, KEEL_ERROR_INTERNAL = 7, &
    KEEL_ERROR_MEMORY = 8, KEEL_ERROR_HANDLE = 9

  type, public :: keel_settings
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => settings_create
    procedure :: load => settings_load
    procedure :: set => settings_set
    procedure :: log => settings_log
    procedure :: destroy => settings_destroy
  end type

  ! Ranks that are threads of this process.
  type, public :: keel_team
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => team_create
    procedure :: destroy => team_destroy
  end type

  type, public :: keel_context
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => context_create
    procedure :: create_tcp => context_create_tcp
    procedure :: create_thread => context_create_thread
    procedure :: ranks => context_ranks
    procedure :: fail => context_fail
    procedure :: destroy => context_destroy
  end type

  public :: keel_last_error, finish, c_text, text_at, handle_of

contains

  ! What `stat` is for, after each call.
  subroutine finish(status, stat)
    integer(c_int), intent(in) :: status
    integer, intent(out), optional :: stat
    character(:), allocatable :: message

    if (present(stat)) then
      stat = status
    else if (status /= KEEL_OK) then
      message = keel_last_error()
      error stop message
    end if
  end subroutine

  ! What was wrong with the last call that failed.
  function keel_last_error() result(text)
    character(:), allocatable :: text
    text = text_at(keel_last_error_c())
  end function

  ! C's text.
  function text_at(address) result(text)
    type(c_ptr), intent(in) :: address
    character(:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: i

    call c_f_pointer(address, letters, [strlen_c(address)])
    allocate (character(size(letters)) :: text)
    do i = 1, size(letters)
      text(i:i) = letters(i)
    end do
  end function

  pure function c_text(text) result(terminated)
    character(*), intent(in) :: text
    character(len_trim(text) + 1, c_char) :: terminated
    terminated = trim(text) // c_null_char
  end function

  ! --- settings

  subroutine settings_create(self, stat)
    class(keel_settings), intent(inout) :: self
    integer, intent(out), optional :: stat
    call finish(keel_settings_create_c(self%handle), stat)
  end subroutine

  subroutine settings_load(self, file, stat)
    class(keel_settings), intent(inout) :: self
    character(*), intent(in) :: file
    integer, intent(out), optional :: stat
    call finish(keel_settings_load_c(self%handle, c_text(file)), stat)
  end subroutine

  subroutine settings_set(self, key, val, stat)
    class(keel_settings), intent(inout) :: self
    character(*), intent(in) :: key, val
    integer, intent(out), optional :: stat
    call finish(keel_settings_set_c(self%handle, c_text(key), c_text(val)), stat)
  end subroutine

  ! `f` is c_funloc() of a subroutine with bind(C): integer(c_int), value :: level; type(c_ptr), value :: message, user.
  subroutine settings_log(self, f, stat)
    class(keel_settings), intent(inout) :: self
    type(c_funptr), intent(in) :: f
    integer, intent(out), optional :: stat
    call finish(keel_settings_log_c(self%handle, f, c_null_ptr), stat)
  end subroutine

  subroutine settings_destroy(self, stat)
    class(keel_settings), intent(inout) :: self
    integer, intent(out), optional :: stat
    call finish(keel_settings_destroy_c(self%handle), stat)
  end subroutine

  ! The handle of settings that may be left out.
  type(c_ptr) function handle_of(settings)
    type(keel_settings), intent(in), optional :: settings
    handle_of = c_null_ptr
    if (present(settings)) handle_of = settings%handle
  end function

  ! --- contexts

  ! Without a communicator: a rank alone.
  subroutine context_create(self, settings, communicator, stat)
    class(keel_context), intent(inout) :: self
    type(keel_settings), intent(in), optional :: settings
    integer, intent(in), optional :: communicator
    integer, intent(out), optional :: stat
    if (present(communicator)) then
      call finish(keel_context_create_mpi_c(int(communicator, c_int64_t), handle_of(settings), self%handle), &
        stat)
    else
      call finish(keel_context_create_c(handle_of(settings), self%handle), stat)
    end if
  end subroutine

  ! Ranks count from 0; `timeout` is in seconds, and `token` may be blank.
  subroutine context_create_tcp(self, rank, ranks, address, token, timeout, settings, stat)
    class(keel_context), intent(inout) :: self
    integer, intent(in) :: rank, ranks
    character(*), intent(in) :: address, token
    real(c_double), intent(in) :: timeout
    type(keel_settings), intent(in), optional :: settings
    integer, intent(out), optional :: stat
    call finish(keel_context_create_tcp_c(rank, ranks, c_text(address), c_text(token), timeout, handle_of(settings), &
      self%handle), stat)
  end subroutine

  subroutine context_create_thread(self, team, rank, settings, stat)
    class(keel_context), intent(inout) :: self
    type(keel_team), intent(in) :: team
    integer, intent(in) :: rank
    type(keel_settings), intent(in), optional :: settings
    integer, intent(out), optional :: stat
    call finish(keel_context_create_thread_c(team%handle, rank, handle_of(settings), self%handle), stat)
  end subroutine

  subroutine team_create(self, ranks, timeout, stat)
    class(keel_team), intent(inout) :: self
    integer, intent(in) :: ranks
    real(c_double), intent(in) :: timeout
    integer, intent(out), optional :: stat
    call finish(keel_team_create_c(ranks, timeout, self%handle), stat)
  end subroutine

  subroutine team_destroy(self, stat)
    class(keel_team), intent(inout) :: self
    integer, intent(out), optional :: stat
    call finish(keel_team_destroy_c(self%handle), stat)
  end subroutine

  subroutine context_ranks(self, rank, ranks, stat)
    class(keel_context), intent(inout) :: self
    integer, intent(out) :: rank, ranks
    integer, intent(out), optional :: stat
    call finish(keel_context_ranks_c(self%handle, rank, ranks), stat)
  end subroutine

  subroutine context_fail(self, reason, stat)
    class(keel_context), intent(inout) :: self
    character(*), intent(in) :: reason
    integer, intent(out), optional :: stat
    call finish(keel_context_fail_c(self%handle, c_text(reason)), stat)
  end subroutine

  subroutine context_destroy(self, stat)
    class(keel_context), intent(inout) :: self
    integer, intent(out), optional :: stat
    call finish(keel_context_destroy_c(self%handle), stat)
  end subroutine

end module keel_objects
