// Style sheets cannot ask how long a piece of code is: see session.css.
for (const code of document.querySelectorAll(".content :not(pre) > code")) {
    code.classList.add(code.textContent.length > 24 ? "long" : "short");
}
