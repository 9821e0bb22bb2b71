! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! Derived types in regions of flang: whole, by their members, nested, with allocatable
! members, and by a mapper.
!
! RUN: %flang %s -o %t
! RUN: %run2 %t | FileCheck %s
! REQUIRES: flang
!
! CHECK: result: right

program types
  use omp_lib
  implicit none
  type point
    real(8) :: x, y
  end type
  type cloud
    integer :: count
    type(point) :: centre, at(8)
    real(8), allocatable :: weight(:)
  end type
  type tracked
    integer :: id
    real(8), allocatable :: data(:)
  end type
  !$omp declare mapper(deep: tracked :: t) map(t, t%data)
  integer :: d
  do d = 0, omp_get_num_devices() - 1
    call whole(d)
    call members(d)
    call stays(d)
    call mapper(d)
  end do
  print '(a)', 'result: right'

contains

  subroutine check(right, what)
    logical, intent(in) :: right
    character(*), intent(in) :: what
    if (.not. right) then
      print '(2a)', 'wrong: ', what
      stop 1
    end if
  end subroutine

  subroutine whole(d)
    integer, intent(in) :: d
    type(point) :: p, many(100)
    integer :: i
    p = point(1, 2)
    many = point(0, 1)
    !$omp target teams distribute parallel do map(to: p) map(tofrom: many) device(d)
    do i = 1, 100
      many(i)%x = many(i)%x + p%x*i
      many(i)%y = many(i)%y + p%y
    end do
    call check(sum(many%x) == 5050 .and. all(many%y == 3), 'an array of types')

    ! Mapped without being named.
    !$omp target device(d)
    p%y = p%x + 10
    !$omp end target
    call check(p%x == 1 .and. p%y == 11, 'implicit')
  end subroutine

  ! Only what is named goes there and back.
  subroutine members(d)
    integer, intent(in) :: d
    type(cloud) :: c
    c%count = 3
    c%centre = point(1, 1)
    c%at = point(2, 2)
    allocate (c%weight(50))
    c%weight = 4
    !$omp target map(tofrom: c%at(2:3), c%weight) map(to: c%centre) device(d)
    c%at(2)%x = c%centre%x + 6
    c%weight(1:10) = c%at(2)%x
    !$omp end target
    call check(c%count == 3 .and. c%at(2)%x == 7 .and. sum(c%at%x) == 21, 'members')
    call check(sum(c%weight) == 230, 'an allocatable member')
  end subroutine

  subroutine stays(d)
    integer, intent(in) :: d
    type(cloud), allocatable :: c
    allocate (c)
    allocate (c%weight(1000))
    c%weight = 1
    c%count = 1
    !$omp target enter data map(to: c, c%weight) device(d)
    !$omp target map(c, c%weight) device(d)
    c%weight = c%weight + c%count
    c%count = size(c%weight)
    !$omp end target
    !$omp target update from(c%count) device(d)
    call check(c%count == 1000, 'update of a member')
    !$omp target exit data map(from: c%weight) map(release: c) device(d)
    call check(all(c%weight == 2), 'enter and exit data')
  end subroutine

  subroutine mapper(d)
    integer, intent(in) :: d
    type(tracked) :: t
    t%id = 9
    allocate (t%data(20))
    t%data = 3
    !$omp target map(mapper(deep), tofrom: t) device(d)
    t%data = t%data*t%id
    t%id = 10
    !$omp end target
    call check(t%id == 10 .and. all(t%data == 27), 'mapper')
  end subroutine
end program
